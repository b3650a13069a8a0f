"""Renders templates as plain functions of their values: none of them awaits.

Quart's own environment compiles templates to coroutines, in which every call of a macro is awaited.
Without that, a page of macros takes a third of the time.
"""

import asyncio
from collections.abc import Iterator
from typing import Any, cast

from jinja2 import BaseLoader, Environment, Template
from jinja2.meta import find_referenced_templates
from quart import Quart, current_app

from service.core.threads import in_thread


class TemplateEnvironment(Environment):
    """The app's templates, compiled to plain functions."""

    loader: BaseLoader

    def __init__(self, app: Quart, **options: Any) -> None:  # noqa: ANN401 - as Jinja's
        super().__init__(loader=app.create_global_jinja_loader(), **options)
        self._compiled: dict[str, Template] = {}
        self._compiling = asyncio.Lock()

    async def compiled(self, name: str) -> Template:
        """The template `name`; it and all that it refers to are compiled in a thread, once."""
        if name not in self._compiled:
            async with self._compiling:
                if name not in self._compiled:
                    self._compiled[name] = await in_thread(self._with_all_used, name)
        return self._compiled[name]

    def _with_all_used(self, name: str) -> Template:
        names = [name]
        for each in names:
            source, _, _ = self.loader.get_source(self, each)
            used = find_referenced_templates(self.parse(source))
            names += [other for other in used if other is not None and other not in names]
            self.get_template(each)
        return self.get_template(name)


async def render_template(name: str, /, **values: Any) -> str:  # noqa: ANN401 - a template's
    """The page that the template `name` renders from `values` and the values of all templates.

    Rendered in a thread: lists of thousands to choose from take 50 ms.
    """
    template, context = await _prepared(name, values)
    return await in_thread(template.render, context)


async def template_pieces(name: str, /, **values: Any) -> Iterator[str]:  # noqa: ANN401 - a template's
    """The same page in pieces, each rendered on demand."""
    template, context = await _prepared(name, values)
    return template.generate(context)


async def _prepared(name: str, values: dict[str, Any]) -> tuple[Template, dict[str, Any]]:
    await current_app.update_template_context(values)
    templates = cast("TemplateEnvironment", current_app.jinja_env)
    return await templates.compiled(name), values
