import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.net.InetAddress;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.stream.Collectors;
import kafka.security.authorizer.AclAuthorizer;
import org.apache.kafka.common.acl.AccessControlEntry;
import org.apache.kafka.common.acl.AclBinding;
import org.apache.kafka.common.acl.AclOperation;
import org.apache.kafka.common.acl.AclPermissionType;
import org.apache.kafka.common.network.ListenerName;
import org.apache.kafka.common.requests.RequestContext;
import org.apache.kafka.common.requests.RequestHeader;
import org.apache.kafka.common.protocol.ApiKeys;
import org.apache.kafka.common.network.ClientInformation;
import org.apache.kafka.common.resource.PatternType;
import org.apache.kafka.common.resource.ResourcePattern;
import org.apache.kafka.common.resource.ResourceType;
import org.apache.kafka.common.security.auth.KafkaPrincipal;
import org.apache.kafka.common.security.auth.SecurityProtocol;
import org.apache.kafka.common.utils.SecurityUtils;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.metadata.authorizer.ClusterMetadataAuthorizer;
import org.apache.kafka.metadata.authorizer.StandardAcl;
import org.apache.kafka.metadata.authorizer.StandardAuthorizer;
import org.apache.kafka.security.authorizer.AclEntry;
import org.apache.kafka.server.authorizer.Action;
import org.apache.kafka.server.authorizer.AuthorizationResult;
import org.apache.kafka.server.authorizer.Authorizer;
import scala.jdk.javaapi.CollectionConverters;

/**
 * Kafka's own authorizers decide.
 *
 * <p>Reads lines, separated by tabs: CLUSTER SUPER_USERS ALLOW_EVERYONE begins a cluster without ACLs; ACL TYPE NAME
 * PATTERN PRINCIPAL HOST OPERATION PERMISSION adds one; ASK PRINCIPAL HOST OPERATION TYPE NAME, and ANY PRINCIPAL HOST
 * OPERATION TYPE, ask. Writes a line for each question: what AclAuthorizer and StandardAuthorizer say, 1 or 0 each.
 */
public final class Decisions {
    private static Set<KafkaPrincipal> superUsers;
    private static boolean allowsEveryone;
    private static Map<ResourcePattern, Set<AclEntry>> acls;
    private static List<Authorizer> authorizers;

    public static void main(String[] arguments) throws Exception {
        var lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        var answers = new StringBuilder();
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] parts = line.split("\t", -1);
            switch (parts[0]) {
                case "CLUSTER" -> begin(parts[1], parts[2]);
                case "ACL" -> add(parts);
                default -> answers.append(ask(parts)).append('\n');
            }
        }
        System.out.print(answers);
    }

    private static void begin(String users, String everyone) {
        superUsers = new HashSet<>();
        for (String one : users.split(";")) if (!one.isEmpty()) superUsers.add(SecurityUtils.parseKafkaPrincipal(one));
        allowsEveryone = Boolean.parseBoolean(everyone);
        acls = new HashMap<>();
        authorizers = null;
    }

    private static void add(String[] parts) {
        var resource = new ResourcePattern(
            ResourceType.valueOf(parts[1]), parts[2], PatternType.valueOf(parts[3]));
        var entry = new AccessControlEntry(
            parts[4], parts[5], AclOperation.valueOf(parts[6]), AclPermissionType.valueOf(parts[7]));
        acls.computeIfAbsent(resource, key -> new HashSet<>()).add(new AclEntry(entry));
    }

    private static String ask(String[] parts) throws Exception {
        if (authorizers == null) authorizers = List.of(aclAuthorizer(), standardAuthorizer());
        var context = new RequestContext(
            new RequestHeader(ApiKeys.METADATA, (short) 1, "", 0), "", InetAddress.getByName(parts[2]),
            SecurityUtils.parseKafkaPrincipal(parts[1]), new ListenerName("PLAINTEXT"), SecurityProtocol.PLAINTEXT,
            ClientInformation.EMPTY, false);
        var operation = AclOperation.valueOf(parts[3]);
        var type = ResourceType.valueOf(parts[4]);
        return authorizers.stream().map(one -> {
            AuthorizationResult result = parts[0].equals("ANY")
                ? one.authorizeByResourceType(context, operation, type)
                : one.authorize(context, List.of(new Action(
                    operation, new ResourcePattern(type, parts[5], PatternType.LITERAL), 1, false, false))).get(0);
            return result == AuthorizationResult.ALLOWED ? "1" : "0";
        }).collect(Collectors.joining());
    }

    /** One whose fields are set by reflection, since its own way to set them needs ZooKeeper. */
    private static Authorizer aclAuthorizer() throws Exception {
        var authorizer = new AclAuthorizer();
        set(authorizer, "superUsers", CollectionConverters.asScala(superUsers).toSet());
        set(authorizer, "shouldAllowEveryoneIfNoAclIsFound", allowsEveryone);
        acls.forEach((resource, entries) -> authorizer.updateCache(
            resource, new AclAuthorizer.VersionedAcls(CollectionConverters.asScala(entries).toSet(), 0)));
        return authorizer;
    }

    private static void set(Object object, String field, Object value) throws Exception {
        var found = AclAuthorizer.class.getDeclaredField(field);
        found.setAccessible(true);
        found.set(object, value);
    }

    private static Authorizer standardAuthorizer() {
        var authorizer = new StandardAuthorizer();
        authorizer.configure(Map.of(
            "super.users", superUsers.stream().map(KafkaPrincipal::toString).collect(Collectors.joining(";")),
            "allow.everyone.if.no.acl.found", String.valueOf(allowsEveryone)));
        Map<Uuid, StandardAcl> all = new HashMap<>();
        acls.forEach((resource, entries) -> entries.forEach(entry ->
            all.put(Uuid.randomUuid(), StandardAcl.fromAclBinding(new AclBinding(resource, entry.ace)))));
        authorizer.loadSnapshot(all);
        ((ClusterMetadataAuthorizer) authorizer).completeInitialLoad();
        return authorizer;
    }
}
