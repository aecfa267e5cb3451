package raftlog;

import java.time.Duration;
import java.util.concurrent.atomic.AtomicBoolean;
import org.apache.kafka.clients.consumer.CommitFailedException;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.errors.RebalanceInProgressException;
import org.apache.kafka.common.errors.RetriableException;
import org.apache.kafka.common.errors.UnknownMemberIdException;

/** One consumer of a group, `Member BOOTSTRAP TOPIC GROUP ASSIGNOR [INSTANCE]`: what tests/clients/member.py is for Python. */
public final class Member {
    private Member() {}

    public static void main(String[] words) {
        AtomicBoolean ended = Lines.ended();
        try (KafkaConsumer<String, String> consumer = Consumers.subscribed(words)) {
            while (!ended.get()) {
                ConsumerRecords<String, String> found = consumer.poll(Duration.ofMillis(100));
                for (ConsumerRecord<String, String> each : found) {
                    Lines.tell("read " + each.value());
                }
                commit(consumer, found.isEmpty());
            }
        }
    }

    private static void commit(KafkaConsumer<String, String> consumer, boolean nothing) {
        if (nothing) {
            return;
        }
        try {
            consumer.commitSync();
        } catch (CommitFailedException
                | RebalanceInProgressException
                | RetriableException
                | UnknownMemberIdException moved) {
            // the next owner reads it again
        }
    }
}
