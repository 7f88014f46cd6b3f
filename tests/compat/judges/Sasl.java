import java.nio.charset.StandardCharsets;
import java.util.Base64;
import java.util.Map;
import java.util.Scanner;
import java.util.TreeMap;
import org.apache.kafka.common.config.types.Password;
import org.apache.kafka.common.security.JaasContext;
import org.apache.kafka.common.security.scram.internals.ScramCredentialUtils;
import org.apache.kafka.common.security.scram.internals.ScramFormatter;
import org.apache.kafka.common.security.scram.internals.ScramMechanism;

/** Answers each line in base 64: `jaas TEXT` with the options, or nothing; `scram MECHANISM PASSWORD SALT ITERATIONS`. */
public class Sasl {
    private static String decoded(String text) {
        return new String(Base64.getDecoder().decode(text), StandardCharsets.UTF_8);
    }

    private static String encoded(String text) {
        return Base64.getEncoder().encodeToString(text.getBytes(StandardCharsets.UTF_8));
    }

    private static String options(String text) {
        try {
            JaasContext context = JaasContext.loadClientContext(Map.of("sasl.jaas.config", new Password(text)));
            StringBuilder said = new StringBuilder();
            new TreeMap<>(context.configurationEntries().get(0).getOptions()).forEach(
                (name, value) -> said.append(encoded(name)).append('=').append(encoded((String) value)).append(' '));
            return "options " + said;
        } catch (RuntimeException refused) {
            return "refused";
        }
    }

    private static String credential(String[] words) throws Exception {
        ScramFormatter formatter = new ScramFormatter(ScramMechanism.forMechanismName(words[1]));
        byte[] salt = Base64.getDecoder().decode(words[3]);
        int iterations = Integer.parseInt(words[4]);
        byte[] salted = formatter.saltedPassword(decoded(words[2]), salt, iterations);
        return ScramCredentialUtils.credentialToString(formatter.generateCredential(salt, salted, iterations));
    }

    public static void main(String[] arguments) throws Exception {
        Scanner lines = new Scanner(System.in, StandardCharsets.UTF_8);
        while (lines.hasNextLine()) {
            String[] words = lines.nextLine().split(" ");
            System.out.println("> " + (words[0].equals("jaas") ? options(decoded(words[1])) : credential(words)));
        }
    }
}
