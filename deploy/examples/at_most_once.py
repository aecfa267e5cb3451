"""A receipt for each order, at most once: first the commit, then the work. Who dies in between never does the work."""

from __future__ import annotations

from shop import AFTER_COMMIT, BEFORE_COMMIT, Fate, batches, consumer, options, producer


def main() -> None:
    asked = options("at-most-once")
    fate, orders, receipts = Fate(asked), consumer(asked), producer(asked)
    for batch in batches(orders):
        fate.strikes(BEFORE_COMMIT)
        orders.commit(asynchronous=False)
        fate.strikes(AFTER_COMMIT)
        for order in batch:
            receipts.produce(asked.receipts, order.value())
        receipts.flush()
    orders.close()


if __name__ == "__main__":
    main()
