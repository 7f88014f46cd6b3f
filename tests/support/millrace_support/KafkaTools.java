import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.EOFException;
import java.io.IOException;
import java.io.OutputStream;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.util.ArrayList;
import java.util.List;
import org.apache.kafka.common.utils.Exit;

/**
 * Runs Apache Kafka's command-line tools one after another in one JVM (warm_tools.py).
 *
 * Everything that comes and goes is a number of four bytes, or bytes behind their number. A request is the number of
 * its words, these words (a main class and its arguments) and the tool's standard input; the answer is the tool's exit
 * status, the number of threads that it has left behind, and what it has printed. Such threads print nothing into the
 * answers of later tools.
 */
class KafkaTools {
    static final ByteArrayOutputStream PRINTED = new ByteArrayOutputStream();
    static final List<Runnable> AT_EXIT = new ArrayList<>();
    static volatile ThreadGroup running;
    static volatile Integer status;
    static int threadsLeft;
    static volatile boolean isSilent;

    public static void main(String[] arguments) throws Exception {
        DataInputStream requests = new DataInputStream(System.in);
        DataOutputStream answers = new DataOutputStream(System.out);
        PrintStream output = new PrintStream(new OfTheRunningTool(), true);
        System.setOut(output);
        System.setErr(output);
        Exit.setExitProcedure(KafkaTools::exit);
        Exit.setHaltProcedure(KafkaTools::exit);
        Exit.setShutdownHookAdder((name, hook) -> AT_EXIT.add(hook));
        try {
            while (true) {
                answer(requests, answers);
            }
        } catch (EOFException end) {
            Runtime.getRuntime().halt(0);
        }
    }

    static void answer(DataInputStream requests, DataOutputStream answers) throws Exception {
        String[] words = new String[requests.readInt()];
        for (int index = 0; index < words.length; index++) {
            words[index] = new String(bytes(requests), "UTF-8");
        }
        System.setIn(new ByteArrayInputStream(bytes(requests)));
        run(words[0], java.util.Arrays.copyOfRange(words, 1, words.length));
        byte[] printed;
        synchronized (PRINTED) {
            printed = PRINTED.toByteArray();
            PRINTED.reset();
        }
        answers.writeInt(status);
        answers.writeInt(threadsLeft);
        answers.writeInt(printed.length);
        answers.write(printed);
        answers.flush();
    }

    static byte[] bytes(DataInputStream requests) throws IOException {
        return requests.readNBytes(requests.readInt());
    }

    static void run(String mainClass, String[] arguments) throws InterruptedException {
        status = null;
        isSilent = false;
        AT_EXIT.clear();
        running = new ThreadGroup(mainClass);
        Thread tool = new Thread(running, () -> {
            callMain(mainClass, arguments);
            isSilent = false;
            List.copyOf(AT_EXIT).forEach(Runnable::run);
        }, "main");
        tool.start();
        tool.join();
        threadsLeft = running.activeCount();
        running = null;
        status = status == null ? 0 : status;
    }

    static void callMain(String mainClass, String[] arguments) {
        try {
            Class.forName(mainClass).getMethod("main", String[].class).invoke(null, (Object) arguments);
        } catch (InvocationTargetException failure) {
            if (status == null) {
                System.err.print("Exception in thread \"main\" ");
                failure.getCause().printStackTrace();
                status = 1;
            }
        } catch (ReflectiveOperationException failure) {
            failure.printStackTrace();
            status = 1;
        }
    }

    /**
     * Ends a tool by an error. Some tools catch it, say so and exit again: the first exit counts, what was printed
     * before, and what the hooks of the end print.
     */
    static void exit(int code, String message) {
        status = status == null ? code : status;
        isSilent = true;
        throw new ThreadDeath();
    }

    static class OfTheRunningTool extends OutputStream {
        @Override
        public void write(int one) {
            write(new byte[] {(byte) one}, 0, 1);
        }

        @Override
        public void write(byte[] some, int from, int count) {
            synchronized (PRINTED) {
                if (!isSilent && running != null && running.parentOf(Thread.currentThread().getThreadGroup())) {
                    PRINTED.write(some, from, count);
                }
            }
        }
    }
}
