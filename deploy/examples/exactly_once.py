"""A receipt for each order, exactly once: the work and the commit are one transaction, seen whole or not at all."""

from __future__ import annotations

from shop import AFTER_COMMIT, BEFORE_COMMIT, Fate, batches, consumer, options, producer


def main() -> None:
    asked = options("exactly-once")
    fate, orders = Fate(asked), consumer(asked)
    receipts = producer(asked, **{"transactional.id": asked.group})
    receipts.init_transactions()  # ends what a former life of this program left open
    for batch in batches(orders):
        receipts.begin_transaction()
        for order in batch:
            receipts.produce(asked.receipts, order.value())
        read_to = orders.position(orders.assignment())
        receipts.send_offsets_to_transaction(read_to, orders.consumer_group_metadata())
        receipts.flush()
        fate.strikes(BEFORE_COMMIT)
        receipts.commit_transaction()
        fate.strikes(AFTER_COMMIT)
    orders.close()


if __name__ == "__main__":
    main()
