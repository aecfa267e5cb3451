package raftlog;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.net.InetAddress;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.acl.AclOperation;
import org.apache.kafka.common.acl.AclPermissionType;
import org.apache.kafka.common.metrics.Metrics;
import org.apache.kafka.common.metrics.internals.PluginMetricsImpl;
import org.apache.kafka.common.resource.PatternType;
import org.apache.kafka.common.resource.ResourcePattern;
import org.apache.kafka.common.resource.ResourceType;
import org.apache.kafka.common.security.auth.KafkaPrincipal;
import org.apache.kafka.common.security.auth.SecurityProtocol;
import org.apache.kafka.common.utils.SecurityUtils;
import org.apache.kafka.metadata.authorizer.StandardAcl;
import org.apache.kafka.metadata.authorizer.StandardAuthorizer;
import org.apache.kafka.server.authorizer.Action;
import org.apache.kafka.server.authorizer.AuthorizableRequestContext;
import org.apache.kafka.server.authorizer.AuthorizationResult;

/** Kafka's StandardAuthorizer: a line of JSON with rules and questions, and back a line with 1 or 0 for each question. */
public final class Authorizations {
    private record Sender(KafkaPrincipal principal, InetAddress clientAddress) implements AuthorizableRequestContext {
        @Override public String listenerName() { return "PLAINTEXT"; }
        @Override public SecurityProtocol securityProtocol() { return SecurityProtocol.PLAINTEXT; }
        @Override public int requestType() { return 0; }
        @Override public int requestVersion() { return 0; }
        @Override public String clientId() { return ""; }
        @Override public int correlationId() { return 0; }
    }

    private Authorizations() {}

    public static void main(String[] args) throws Exception {
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        ObjectMapper mapper = new ObjectMapper();
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            System.out.println(answers(mapper.readTree(line)));
        }
    }

    private static String answers(JsonNode asked) throws Exception {
        try (Metrics metrics = new Metrics(); StandardAuthorizer authorizer = new StandardAuthorizer()) {
            authorizer.withPluginMetrics(new PluginMetricsImpl(metrics, new LinkedHashMap<>()));
            List<String> superUsers = new ArrayList<>();
            asked.get("superUsers").forEach(each -> superUsers.add(each.asText()));
            authorizer.configure(Map.of(
                "super.users", String.join(";", superUsers),
                "allow.everyone.if.no.acl.found", asked.get("allowIfNoRule").asText()));
            Map<Uuid, StandardAcl> acls = new HashMap<>();
            asked.get("acls").forEach(each -> acls.put(Uuid.randomUuid(), acl(each)));
            authorizer.loadSnapshot(acls);
            authorizer.completeInitialLoad();
            StringBuilder answers = new StringBuilder();
            for (JsonNode question : asked.get("questions")) {
                answers.append(answer(authorizer, question) == AuthorizationResult.ALLOWED ? '1' : '0');
            }
            return answers.toString();
        }
    }

    private static AuthorizationResult answer(StandardAuthorizer authorizer, JsonNode question) throws Exception {
        Sender sender = new Sender(
            SecurityUtils.parseKafkaPrincipal(question.get("principal").asText()),
            InetAddress.getByName(question.get("host").asText()));
        AclOperation operation = AclOperation.fromCode((byte) question.get("operation").asInt());
        ResourceType type = ResourceType.fromCode((byte) question.get("type").asInt());
        if (question.get("name").isNull()) {
            return authorizer.authorizeByResourceType(sender, operation, type);
        }
        ResourcePattern resource = new ResourcePattern(type, question.get("name").asText(), PatternType.LITERAL);
        return authorizer.authorize(sender, List.of(new Action(operation, resource, 1, true, true))).get(0);
    }

    private static StandardAcl acl(JsonNode rule) {
        return new StandardAcl(
            ResourceType.fromCode((byte) rule.get("type").asInt()),
            rule.get("name").asText(),
            PatternType.fromCode((byte) rule.get("pattern").asInt()),
            rule.get("principal").asText(),
            rule.get("host").asText(),
            AclOperation.fromCode((byte) rule.get("operation").asInt()),
            AclPermissionType.fromCode((byte) rule.get("permission").asInt()));
    }
}
