package raftlog;

import java.time.Duration;
import java.util.concurrent.atomic.AtomicBoolean;
import org.apache.kafka.clients.consumer.CommitFailedException;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.errors.RebalanceInProgressException;
import org.apache.kafka.common.errors.RetriableException;
import org.apache.kafka.common.errors.StaleMemberEpochException;
import org.apache.kafka.common.errors.UnknownMemberIdException;

/**
 * One consumer of a group, `Member BOOTSTRAP TOPIC GROUP ASSIGNOR [INSTANCE]`: what tests/clients/member.py is for Python.
 * Tells `fenced` and why when it hears that it is no member any more, and polls on, by which it joins again.
 */
public final class Member {
    private Member() {}

    public static void main(String[] words) {
        AtomicBoolean ended = Lines.ended();
        try (KafkaConsumer<String, String> consumer = Consumers.subscribed(words)) {
            while (!ended.get()) {
                ConsumerRecords<String, String> found = polled(consumer);
                for (ConsumerRecord<String, String> each : found) {
                    Lines.tell("read " + each.value());
                }
                commit(consumer, found.isEmpty());
            }
        }
    }

    /** In KIP-848 what a member asks while its session ends (where to begin) is refused, and thrown at whoever polls. */
    private static ConsumerRecords<String, String> polled(KafkaConsumer<String, String> consumer) {
        try {
            return consumer.poll(Duration.ofMillis(100));
        } catch (UnknownMemberIdException | StaleMemberEpochException gone) {
            Lines.tell("fenced " + gone);
            return ConsumerRecords.empty();
        }
    }

    private static void commit(KafkaConsumer<String, String> consumer, boolean nothing) {
        if (nothing) {
            return;
        }
        try {
            consumer.commitSync();
        } catch (UnknownMemberIdException gone) {
            Lines.tell("fenced " + gone);
        } catch (CommitFailedException | RebalanceInProgressException | RetriableException moved) {
            // the next owner reads it again
        }
    }
}
