package raftlog;

import java.util.Map;
import java.util.TreeMap;
import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.server.config.AbstractKafkaConfig;
import org.apache.kafka.server.config.DynamicBrokerConfig;
import org.apache.kafka.server.config.DynamicConfig;

/** Tells every broker setting that this version of Apache Kafka has: its name, its type, and how a running broker takes it. */
public final class BrokerConfigs {
    private BrokerConfigs() {}

    public static void main(String[] none) {
        Map<String, String> modes = DynamicBrokerConfig.dynamicConfigUpdateModes();
        Map<String, ConfigDef.ConfigKey> keys = new TreeMap<>(AbstractKafkaConfig.CONFIG_DEF.configKeys());
        keys.putAll(DynamicConfig.Broker.configKeys());
        for (ConfigDef.ConfigKey key : keys.values()) {
            String mode = modes.getOrDefault(key.name, "read-only");
            System.out.println(key.name + " " + key.type.name().toLowerCase() + " " + mode);
        }
    }
}
