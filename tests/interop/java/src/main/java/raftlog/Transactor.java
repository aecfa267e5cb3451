package raftlog;

import java.util.Properties;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import java.util.stream.Stream;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerConfig;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * A transactional producer that does what the lines of its input say, `Transactor BOOTSTRAP ID TIMEOUT_MS`: init, begin,
 * `send TOPIC PARTITION VALUE`, `offset GROUP TOPIC PARTITION OFFSET`, flush, commit, abort. Answers each with `done`, or with
 * `failed` and the name of the exception.
 */
public final class Transactor {
    private Transactor() {}

    public static void main(String[] words) throws java.io.IOException {
        Properties settings = new Properties();
        settings.put(ProducerConfig.BOOTSTRAP_SERVERS_CONFIG, words[0]);
        settings.put(ProducerConfig.TRANSACTIONAL_ID_CONFIG, words[1]);
        settings.put(ProducerConfig.TRANSACTION_TIMEOUT_CONFIG, words[2]);
        settings.put(ProducerConfig.MAX_BLOCK_MS_CONFIG, "30000");
        try (KafkaProducer<String, String> producer =
                new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer())) {
            Lines.tell("done");
            for (String line = Lines.INPUT.readLine(); line != null; line = Lines.INPUT.readLine()) {
                try {
                    obey(producer, line.split(" "));
                    Lines.tell("done");
                } catch (Exception error) {
                    Throwable cause = error instanceof ExecutionException ? error.getCause() : error;
                    Lines.tell("failed " + cause.getClass().getSimpleName() + " " + cause.getMessage());
                }
            }
        }
    }

    private static void obey(KafkaProducer<String, String> producer, String[] words) throws Exception {
        switch (words[0]) {
            case "init" -> producer.initTransactions();
            case "begin" -> producer.beginTransaction();
            case "send" -> {
                Future<RecordMetadata> sent =
                        producer.send(new ProducerRecord<>(words[1], Integer.valueOf(words[2]), null, words[3]));
                sent.get();
            }
            case "offset" -> producer.sendOffsetsToTransaction(
                    java.util.Map.of(
                            new TopicPartition(words[2], Integer.parseInt(words[3])),
                            new OffsetAndMetadata(Long.parseLong(words[4]))),
                    new ConsumerGroupMetadata(words[1]));
            case "flush" -> producer.flush();
            case "commit" -> producer.commitTransaction();
            case "abort" -> producer.abortTransaction();
            default -> throw new IllegalArgumentException(Stream.of(words).toList().toString());
        }
    }
}
