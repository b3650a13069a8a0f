"""The slot rule of the stored bindings, and the migration to another rule."""

from sqlalchemy import select, update
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncSession

from service.core.errors import Conflict
from service.store.store import Store
from service.store.tables import Binding, Fact
from service.trust.bindings.repository import find_active
from service.trust.bindings.rules import BindingSlot, Draft, slot_key

_FACT = "binding_slot"


async def stored_slot_rule(session: AsyncSession) -> BindingSlot:
    """The rule that all stored slots follow.

    New bindings must follow it regardless of this process's configuration: with two rules in use
    at the same time, two active bindings could share a slot.
    """
    fact = await session.get_one(Fact, _FACT)
    return "tenant" if fact.value == "tenant" else "global"


async def find_holder(session: AsyncSession, tenant_id: str, draft: Draft) -> Binding | None:
    """The organisation's active binding in the slot of `draft`, or None.

    Also None if another organisation holds it, which must not be disclosed.
    """
    holder = await find_active(session, slot_key(draft, tenant_id, await stored_slot_rule(session)))
    return holder if holder is not None and holder.tenant_id == tenant_id else None


async def keep_slot_rule(store: Store, slot_rule: BindingSlot) -> None:
    """Rekey all stored slots to follow `slot_rule`.

    Raises Conflict, changing nothing, if two active bindings would then share a slot.
    """
    async with store.write() as work:
        fact = await work.session.get(Fact, _FACT)
        if fact is not None and fact.value == slot_rule:
            return
        if fact is None:
            work.session.add(Fact(name=_FACT, value=slot_rule))
        else:
            fact.value = slot_rule
        try:
            for binding in await work.session.scalars(select(Binding)):
                slot = slot_key(binding, binding.tenant_id, slot_rule)
                own = update(Binding).where(Binding.id == binding.id)
                await work.session.execute(own.values(slot=slot))
        except IntegrityError as error:
            raise Conflict(
                f"COUNTERSIGN_BINDING_SLOT={slot_rule}: two active bindings would share a slot;"
                " revoke one of them first"
            ) from error
