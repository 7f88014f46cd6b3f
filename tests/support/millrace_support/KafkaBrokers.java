import java.io.BufferedReader;
import java.io.FileOutputStream;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.util.Queue;
import java.util.concurrent.ConcurrentLinkedQueue;
import org.apache.kafka.common.utils.Exit;

/**
 * Runs brokers of Apache Kafka one after another in one JVM (warm_kafka.py).
 *
 * A line of standard input starts a broker by its file of properties and its log, with a tab between. An empty line
 * stops it in good order, as SIGTERM does, and is answered by a line. A broker that ends by itself ends the JVM, and so
 * does the end of standard input.
 */
class KafkaBrokers {
    static final Queue<Runnable> AT_EXIT = new ConcurrentLinkedQueue<>();
    static volatile boolean isStopping;
    static Thread broker;

    public static void main(String[] arguments) throws Exception {
        BufferedReader requests = new BufferedReader(new InputStreamReader(System.in));
        PrintStream answers = System.out;
        Exit.setExitProcedure((code, message) -> exit(code));
        Exit.setShutdownHookAdder((name, hook) -> AT_EXIT.add(hook));
        for (String line = requests.readLine(); line != null; line = requests.readLine()) {
            if (line.isEmpty()) {
                stop();
                answers.println();
            } else {
                String[] words = line.split("\t");
                start(words[0], words[1]);
            }
        }
        Runtime.getRuntime().halt(0);
    }

    static void start(String properties, String log) throws IOException {
        PrintStream output = new PrintStream(new FileOutputStream(log), true);
        System.setOut(output);
        System.setErr(output);
        isStopping = false;
        AT_EXIT.clear();
        broker = new Thread(() -> kafka.Kafka.main(new String[] {properties}), "main");
        broker.start();
    }

    static void stop() throws InterruptedException {
        isStopping = true;
        AT_EXIT.forEach(Runnable::run);
        broker.join();
        System.err.close();
    }

    /** Ends the thread of a broker that was stopped, and otherwise the JVM. */
    static void exit(int code) {
        if (isStopping && Thread.currentThread() == broker) {
            throw new ThreadDeath();
        }
        Runtime.getRuntime().halt(code);
    }
}
