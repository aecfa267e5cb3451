package raftlog;

import java.time.Duration;
import java.util.List;
import java.util.Properties;
import org.apache.kafka.clients.consumer.ConsumerConfig;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;

/** BOOTSTRAP TOPIC RACK COUNT: reads partition 0 with a rack, and tells the metric `preferred-read-replica`. */
final class Nearest {
    private Nearest() {}

    public static void main(String[] words) {
        Properties settings = new Properties();
        settings.put(ConsumerConfig.BOOTSTRAP_SERVERS_CONFIG, words[0]);
        settings.put(ConsumerConfig.CLIENT_RACK_CONFIG, words[2]);
        TopicPartition partition = new TopicPartition(words[1], 0);
        try (KafkaConsumer<String, String> consumer =
                new KafkaConsumer<>(settings, new StringDeserializer(), new StringDeserializer())) {
            consumer.assign(List.of(partition));
            consumer.seekToBeginning(List.of(partition));
            long next = 0;
            while (next < Long.parseLong(words[3])) {
                for (ConsumerRecord<String, String> each : consumer.poll(Duration.ofMillis(200))) {
                    if (each.offset() != next) {
                        throw new IllegalStateException("offset " + each.offset() + " came after " + next);
                    }
                    next++;
                }
            }
            consumer.metrics().values().stream()
                    .filter(each -> each.metricName().name().equals("preferred-read-replica"))
                    .forEach(each -> Lines.tell("preferred " + each.metricValue()));
        }
    }
}
