"""The search of a request: its parameter `q` becomes filters beside the others."""

from collections.abc import Mapping, Sequence
from typing import Final

from analytics.model.filters import InvalidQuery, only
from service.audit.actor_names import actors_by_name
from service.audit.search import Search, parse_search
from service.store.store import Store
from service.store.tables import Organisation

SEARCH: Final = "q"


async def search_of(
    store: Store, org: Organisation, parameters: Mapping[str, Sequence[str]]
) -> Search | None:
    """What `q` asks for in the log of `org`; None without `q`. Raises InvalidQuery."""
    text = only(parameters, SEARCH)
    if text is None:
        return None
    async with store.read() as session:
        return parse_search(text, await actors_by_name(session, org.id))


async def with_search(
    store: Store, org: Organisation, parameters: Mapping[str, Sequence[str]]
) -> dict[str, list[str]]:
    """`parameters` with the filters of `q` instead of it.

    Raises InvalidQuery, whose text names `q`: beside a form's field it would say so twice.
    """
    if SEARCH not in parameters:
        return {name: list(values) for name, values in parameters.items()}
    only(parameters, SEARCH)  # which names the parameter itself
    try:
        search = await search_of(store, org, parameters)
    except InvalidQuery as error:
        raise InvalidQuery(f"{SEARCH}: {error}", field=SEARCH) from error
    filters = {name: list(values) for name, values in parameters.items() if name != SEARCH}
    if search is None:
        return filters
    if search.row_id is not None:
        raise InvalidQuery(
            f"{SEARCH}: a row is read at …/audit/{search.row_id}, not searched", field=SEARCH
        )
    if "last" in search.parameters:
        raise InvalidQuery(
            f"{SEARCH}: last: is for the page; give the parameter since, which pages of rows can"
            " share",
            field=SEARCH,
        )
    return merged(filters, search)


def merged(filters: Mapping[str, Sequence[str]], search: Search) -> dict[str, list[str]]:
    """`filters` and those of `search`: a time in the search takes the place of the other one."""
    result = {name: list(values) for name, values in filters.items()}
    if search.parameters.keys() & {"last", "since", "until"}:
        for name in ("last", "since", "until"):
            result.pop(name, None)
    for name, values in search.parameters.items():
        known = result.setdefault(name, [])
        known += [value for value in values if value not in known]
    return result
