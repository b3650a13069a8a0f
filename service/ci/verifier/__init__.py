"""The CI token verifier: parsing, the seven rules, attribution and records of rejections."""
