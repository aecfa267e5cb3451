"""A receipt for each order, at least once: first the work, then the commit. Who dies in between does the work again."""

from __future__ import annotations

from shop import AFTER_COMMIT, BEFORE_COMMIT, Fate, batches, consumer, options, producer


def main() -> None:
    asked = options("at-least-once")
    fate, orders, receipts = Fate(asked), consumer(asked), producer(asked)
    for batch in batches(orders):
        for order in batch:
            receipts.produce(asked.receipts, order.value())
        receipts.flush()
        fate.strikes(BEFORE_COMMIT)
        orders.commit(asynchronous=False)
        fate.strikes(AFTER_COMMIT)
    orders.close()


if __name__ == "__main__":
    main()
