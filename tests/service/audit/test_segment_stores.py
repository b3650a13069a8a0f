"""Where segments are kept, by the settings."""

import sys

import msgspec
import pytest

from service.audit.installation import open_objects
from service.core.settings import InvalidSetting


def test_without_the_package_for_s3_the_setting_names_its_extra(settings, monkeypatch):
    monkeypatch.setattr(sys, "path", [])
    monkeypatch.delitem(sys.modules, "obstore", raising=False)
    on_s3 = msgspec.structs.replace(settings, segments_url="s3://lake/acme")

    with pytest.raises(
        InvalidSetting, match=r"SEGMENTS_URL: .*pip install .* requirements/s3\.txt"
    ):
        open_objects(on_s3)
