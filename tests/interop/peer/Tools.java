// Runs Kafka's command line tools one after the other in one process: a JVM takes a second to start, and a test runs dozens.
//
// A request is a line of words in Base64, each behind a dot: CLASS INPUT ARGUMENT... The answer is STATUS OUT ERR, likewise.
// What a tool would do at the end of its process (hooks) is done when it has ended.
import java.io.*;
import java.lang.reflect.InvocationTargetException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Base64;
import java.util.List;
import org.apache.kafka.common.utils.Exit;

public class Tools {
    static final class Ended extends Error {
        Ended() {
            super("the tool has ended", null, false, false);
        }
    }

    /** A stream of the process: classes keep it, and each tool writes somewhere else. */
    static final class Switch extends OutputStream {
        volatile ByteArrayOutputStream target = new ByteArrayOutputStream();

        @Override
        public void write(int one) {
            target.write(one);
        }

        @Override
        public void write(byte[] bytes, int from, int count) {
            target.write(bytes, from, count);
        }
    }

    static final Switch OUT = new Switch();
    static final Switch ERR = new Switch();
    static final List<Runnable> HOOKS = new ArrayList<>();
    static volatile Integer status;

    static void end(int code, String message) {
        if (status == null) status = code;
        if (message != null) System.err.println(message);
        throw new Ended();
    }

    static void run(String main, byte[] input, String[] arguments) throws Exception {
        System.setIn(new ByteArrayInputStream(input));
        try {
            Class.forName(main).getMethod("main", String[].class).invoke(null, (Object) arguments);
        } catch (InvocationTargetException error) {
            if (!(error.getCause() instanceof Ended)) {
                error.getCause().printStackTrace();
                if (status == null) status = 1;
            }
        }
        for (Runnable hook : HOOKS) {
            try {
                hook.run();
            } catch (Ended over) {
                // a hook that wants the process to end has what it wants
            }
        }
    }

    static String word(byte[] bytes) {
        return "." + Base64.getEncoder().encodeToString(bytes);
    }

    public static void main(String[] none) throws Exception {
        PrintStream answers = System.out;
        BufferedReader requests = new BufferedReader(new InputStreamReader(System.in));
        System.setOut(new PrintStream(OUT, true));
        System.setErr(new PrintStream(ERR, true));
        Exit.setExitProcedure(Tools::end);
        Exit.setHaltProcedure(Tools::end);
        Exit.setShutdownHookAdder((name, hook) -> HOOKS.add(hook));
        for (String line; (line = requests.readLine()) != null; ) {
            List<byte[]> words = new ArrayList<>();
            for (String word : line.split(" ")) words.add(Base64.getDecoder().decode(word.substring(1)));
            String[] arguments = words.stream().skip(2).map(word -> new String(word, StandardCharsets.UTF_8)).toArray(String[]::new);
            OUT.target = new ByteArrayOutputStream();
            ERR.target = new ByteArrayOutputStream();
            HOOKS.clear();
            status = null;
            run(new String(words.get(0), StandardCharsets.UTF_8), words.get(1), arguments);
            int code = status == null ? 0 : status;
            answers.println(code + " " + word(OUT.target.toByteArray()) + " " + word(ERR.target.toByteArray()));
            answers.flush();
        }
        Runtime.getRuntime().halt(0);
    }
}
