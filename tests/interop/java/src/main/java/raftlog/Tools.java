package raftlog;

import java.io.ByteArrayOutputStream;
import java.io.PrintStream;
import java.util.Arrays;
import org.apache.kafka.common.utils.Exit;

/**
 * What Apache Kafka's scripts start, one after the other on one JVM, since starting it takes longer than what they do. Each line of the
 * input is the name of a class and its words, separated by tabs; the answer is how many lines it printed, and those.
 */
public final class Tools {
    private static final class Ended extends RuntimeException {}

    private Tools() {}

    public static void main(String[] none) throws Exception {
        PrintStream answers = System.out;
        Exit.setExitProcedure((code, message) -> {
            throw new Ended();
        });
        for (String line = Lines.INPUT.readLine(); line != null; line = Lines.INPUT.readLine()) {
            String[] words = line.split("\t");
            String[] printed = printedBy(words[0], Arrays.copyOfRange(words, 1, words.length)).split("\n");
            answers.println(printed.length);
            for (String each : printed) {
                answers.println(each);
            }
        }
    }

    /** Both of its outputs: the tools tell their errors in either. */
    private static String printedBy(String tool, String[] words) throws Exception {
        ByteArrayOutputStream kept = new ByteArrayOutputStream();
        try (PrintStream out = new PrintStream(kept, true)) {
            System.setOut(out);
            System.setErr(out);
            Class.forName(tool).getMethod("main", String[].class).invoke(null, (Object) words);
        } catch (java.lang.reflect.InvocationTargetException ended) {
            if (!(ended.getCause() instanceof Ended)) {
                ended.getCause().printStackTrace(new PrintStream(kept, true));
            }
        }
        return kept.toString();
    }
}
