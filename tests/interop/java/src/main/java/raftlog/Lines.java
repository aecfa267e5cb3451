package raftlog;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.concurrent.atomic.AtomicBoolean;

/** What a program and the test that started it say to each other: lines, as of tests/clients/member.py. */
final class Lines {
    static final BufferedReader INPUT = new BufferedReader(new InputStreamReader(System.in));

    private Lines() {}

    static synchronized void tell(String line) {
        System.out.println(line.stripTrailing());
    }

    /** Becomes true when the input ends. */
    static AtomicBoolean ended() {
        AtomicBoolean ended = new AtomicBoolean();
        Thread reader = new Thread(() -> {
            try {
                while (INPUT.readLine() != null) {}
            } catch (java.io.IOException gone) {
                // whoever started this is gone: the same
            }
            ended.set(true);
        });
        reader.setDaemon(true);
        reader.start();
        return ended;
    }
}
