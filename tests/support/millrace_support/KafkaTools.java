import java.io.BufferedReader;
import java.io.ByteArrayOutputStream;
import java.io.InputStreamReader;
import java.io.OutputStream;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.util.Arrays;
import org.apache.kafka.common.utils.Exit;

/**
 * Runs Apache Kafka's command-line tools one after another in one JVM (kafka_tools.py).
 *
 * A line of stdin has a main class and its arguments, with tabs between. The answer is a line with the exit status and
 * the number of bytes that the tool has printed, and then these bytes.
 */
class KafkaTools {
    static final ByteArrayOutputStream PRINTED = new ByteArrayOutputStream();
    static Integer status;

    public static void main(String[] arguments) throws Exception {
        PrintStream answers = System.out;
        PrintStream output = new PrintStream(new UntilExit(), true);
        System.setOut(output);
        System.setErr(output);
        Exit.setExitProcedure(KafkaTools::exit);
        Exit.setHaltProcedure(KafkaTools::exit);
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line; (line = lines.readLine()) != null;) {
            run(line.split("\t"));
            answers.println(status + " " + PRINTED.size());
            PRINTED.writeTo(answers);
            answers.flush();
        }
        Runtime.getRuntime().halt(0);
    }

    static void run(String[] words) throws Exception {
        status = null;
        PRINTED.reset();
        Object arguments = Arrays.copyOfRange(words, 1, words.length);
        try {
            Class.forName(words[0]).getMethod("main", String[].class).invoke(null, arguments);
            status = status == null ? 0 : status;
        } catch (InvocationTargetException failure) {
            if (status == null) {
                failure.getCause().printStackTrace();
                status = 1;
            }
        }
    }

    /** Ends a tool by an error. Some tools catch it, say so and exit again: the first exit counts, and what was printed before. */
    static void exit(int code, String message) {
        status = status == null ? code : status;
        throw new ThreadDeath();
    }

    static class UntilExit extends OutputStream {
        @Override
        public void write(int one) {
            if (status == null) {
                PRINTED.write(one);
            }
        }
    }
}
