"""The install proxy beside others: one registry on loopback behind all of them.

`registry` is what they ask, `packages` what it has, `peers` the proxies, `installs` the real
package managers, `holds` how long an event loop is blocked.
"""
