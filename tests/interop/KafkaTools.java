import java.io.*;
import java.util.*;

/**
 * Runs several of Kafka's console tools in one JVM, which takes seconds to start. In: a line for each, the tool's class and its
 * arguments with tabs between. Out: what each prints, after a line of "=== ".
 */
public class KafkaTools {
    public static void main(String[] none) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] words = line.split("\t");
            System.out.println("\n=== ");
            String[] arguments = Arrays.copyOfRange(words, 1, words.length);
            Class.forName(words[0]).getMethod("main", String[].class).invoke(null, (Object) arguments);
        }
        System.out.flush();
    }
}
