// Decides with Kafka's own StandardAuthorizer. Words on standard input, separated by tabs; numbers are Kafka's codes:
//   begin ALLOW_EVERYONE SUPER_USERS
//   rule  TYPE NAME PATTERN PRINCIPAL HOST OPERATION PERMISSION
//   ask   TYPE NAME PRINCIPAL HOST OPERATION                    one line comes back: true or false
import java.io.*;
import java.lang.reflect.Method;
import java.net.InetAddress;
import java.util.*;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.acl.*;
import org.apache.kafka.common.metrics.Metrics;
import org.apache.kafka.common.resource.*;
import org.apache.kafka.common.security.auth.*;
import org.apache.kafka.common.utils.SecurityUtils;
import org.apache.kafka.metadata.authorizer.*;
import org.apache.kafka.server.authorizer.*;

public class Acls {
    record Asked(KafkaPrincipal principal, InetAddress clientAddress) implements AuthorizableRequestContext {
        public String listenerName() { return "CONTROLLER"; }
        public SecurityProtocol securityProtocol() { return SecurityProtocol.PLAINTEXT; }
        public int requestType() { return 19; }
        public int requestVersion() { return 7; }
        public String clientId() { return "lab"; }
        public int correlationId() { return 1; }
    }

    // From 4.1 on an authorizer counts its decisions, and must be given the place (KIP-877).
    static void giveMetrics(StandardAuthorizer authorizer) throws ReflectiveOperationException {
        for (Method method : StandardAuthorizer.class.getMethods()) {
            if (method.getName().equals("withPluginMetrics")) {
                var metrics = Class.forName("org.apache.kafka.common.metrics.internals.PluginMetricsImpl");
                var made = metrics.getConstructor(Metrics.class, Map.class).newInstance(new Metrics(), Map.of());
                method.invoke(authorizer, made);
            }
        }
    }

    static ResourceType type(String word) { return ResourceType.fromCode(Byte.parseByte(word)); }
    static AclOperation operation(String word) { return AclOperation.fromCode(Byte.parseByte(word)); }

    public static void main(String[] arguments) throws Exception {
        var in = new BufferedReader(new InputStreamReader(System.in));
        StandardAuthorizer authorizer = null;
        var rules = new HashMap<Uuid, StandardAcl>();
        boolean loaded = false;
        for (String line; (line = in.readLine()) != null; ) {
            String[] words = line.split("\t", -1);
            switch (words[0]) {
                case "begin" -> {
                    authorizer = new StandardAuthorizer();
                    giveMetrics(authorizer);
                    authorizer.configure(Map.of("node.id", "1", "super.users", words[2],
                        "allow.everyone.if.no.acl.found", words[1]));
                    rules.clear();
                    loaded = false;
                }
                case "rule" -> rules.put(Uuid.randomUuid(), new StandardAcl(type(words[1]), words[2],
                    PatternType.fromCode(Byte.parseByte(words[3])), words[4], words[5], operation(words[6]),
                    AclPermissionType.fromCode(Byte.parseByte(words[7]))));
                default -> {
                    if (!loaded) {
                        authorizer.loadSnapshot(rules);
                        authorizer.completeInitialLoad();
                        loaded = true;
                    }
                    var resource = new ResourcePattern(type(words[1]), words[2], PatternType.LITERAL);
                    var asked = new Asked(SecurityUtils.parseKafkaPrincipal(words[3]), InetAddress.getByName(words[4]));
                    var action = new Action(operation(words[5]), resource, 1, true, true);
                    var result = authorizer.authorize(asked, List.of(action)).get(0);
                    System.out.println(result == AuthorizationResult.ALLOWED);
                }
            }
        }
    }
}
