package raftlog;

import java.time.Duration;
import java.util.HashMap;
import java.util.Map;
import java.util.Properties;
import java.util.UUID;
import java.util.concurrent.atomic.AtomicBoolean;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerConfig;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.AuthorizationException;
import org.apache.kafka.common.errors.FencedInstanceIdException;
import org.apache.kafka.common.errors.InvalidProducerEpochException;
import org.apache.kafka.common.errors.ProducerFencedException;
import org.apache.kafka.common.errors.UnsupportedVersionException;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * Consume, transform, produce, `Copier BOOTSTRAP TOPIC GROUP ASSIGNOR`: each value goes to the topic GROUP, exactly once
 * (KIP-447). Each member is a transactional producer of its own; a transaction that cannot be committed is undone and
 * what it read is read again. Tells what a Member tells, `read` once the transaction is committed.
 */
public final class Copier {
    private final KafkaConsumer<String, String> consumer;
    private final String bootstrap;
    private final String target;
    private KafkaProducer<String, String> producer;

    private Copier(String[] words) {
        bootstrap = words[0];
        target = words[2];
        consumer = Consumers.subscribed(words);
        producer = producer();
    }

    public static void main(String[] words) {
        AtomicBoolean ended = Lines.ended();
        Copier copier = new Copier(words);
        while (!ended.get()) {
            ConsumerRecords<String, String> found = copier.consumer.poll(Duration.ofMillis(100));
            if (!found.isEmpty()) {
                copier.copy(found);
            }
        }
        copier.producer.close();
        copier.consumer.close();
    }

    private KafkaProducer<String, String> producer() {
        Properties settings = new Properties();
        settings.put(ProducerConfig.BOOTSTRAP_SERVERS_CONFIG, bootstrap);
        settings.put(ProducerConfig.TRANSACTIONAL_ID_CONFIG, "copier-" + UUID.randomUUID());
        settings.put(ProducerConfig.TRANSACTION_TIMEOUT_CONFIG, "5000");
        KafkaProducer<String, String> made =
                new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer());
        made.initTransactions();
        return made;
    }

    private void copy(ConsumerRecords<String, String> found) {
        try {
            producer.beginTransaction();
            Map<TopicPartition, OffsetAndMetadata> readTo = new HashMap<>();
            for (ConsumerRecord<String, String> each : found) {
                producer.send(new ProducerRecord<>(target, each.partition(), each.key(), each.value()));
                readTo.put(new TopicPartition(each.topic(), each.partition()), new OffsetAndMetadata(each.offset() + 1));
            }
            producer.sendOffsetsToTransaction(readTo, consumer.groupMetadata());
            producer.commitTransaction();
            found.forEach(each -> Lines.tell("read " + each.value()));
        } catch (ProducerFencedException | InvalidProducerEpochException fenced) {
            producer.close(Duration.ZERO);
            producer = producer();
            readAgain();
        } catch (UnsupportedVersionException | AuthorizationException | FencedInstanceIdException hopeless) {
            throw hopeless;
        } catch (KafkaException undone) {
            Lines.tell("undone " + undone);
            undo();
            readAgain();
        }
    }

    private void undo() {
        try {
            producer.abortTransaction();
        } catch (KafkaException gone) {
            producer.close(Duration.ZERO);
            producer = producer();
        }
    }

    /** Goes back to what is committed; at a partition of which nothing is, to its beginning. */
    private void readAgain() {
        Map<TopicPartition, OffsetAndMetadata> committed = consumer.committed(consumer.assignment());
        committed.forEach((place, offset) -> consumer.seek(place, offset == null ? 0 : offset.offset()));
    }
}
