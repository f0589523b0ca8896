package weir;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import org.redisson.Redisson;
import org.redisson.api.RedissonClient;
import org.redisson.client.codec.StringCodec;
import org.redisson.config.Config;

/**
 * A Java process that does with Redisson what its standard input says, a line
 * each: "number actor verb arguments…". It answers "number ok result" or
 * "number failed exception" when the verb has returned. Each actor is a thread
 * of its own, because a thread is what owns a lock of Redisson's.
 *
 * <p>Its own arguments are "single" or "cluster", addresses, and the lease of
 * the watchdog in ms. The first line that it writes is "ready" and its id.
 */
public final class Player {
    private final RedissonClient redisson;
    private final Verbs verbs;
    private final Map<String, ExecutorService> actors = new ConcurrentHashMap<>();

    private Player(RedissonClient redisson) {
        this.redisson = redisson;
        this.verbs = new Verbs(redisson);
    }

    public static void main(String[] args) throws IOException {
        Player player = new Player(Redisson.create(config(args)));
        say("ready " + player.redisson.getId());
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            player.hear(line.split(" "));
        }
        Runtime.getRuntime().halt(0); // the test is over: whatever waits need not
    }

    private static Config config(String[] args) {
        Config config = new Config();
        config.setCodec(StringCodec.INSTANCE);
        config.setThreads(8).setNettyThreads(8);
        config.setLockWatchdogTimeout(Long.parseLong(args[2]));
        String[] addresses = Arrays.stream(args[1].split(",")).map(a -> "redis://" + a).toArray(String[]::new);
        if (args[0].equals("cluster")) {
            config.useClusterServers().addNodeAddress(addresses)
                    .setMasterConnectionMinimumIdleSize(2).setSlaveConnectionMinimumIdleSize(1)
                    .setSubscriptionConnectionMinimumIdleSize(1);
        } else {
            config.useSingleServer().setAddress(addresses[0])
                    .setConnectionMinimumIdleSize(2).setSubscriptionConnectionMinimumIdleSize(1);
        }
        return config;
    }

    private void hear(String[] line) {
        ExecutorService actor = actors.computeIfAbsent(line[1], name -> Executors.newSingleThreadExecutor());
        actor.execute(() -> {
            try {
                String[] args = Arrays.copyOfRange(line, 3, line.length);
                say(line[0] + " ok " + verbs.play(line[2], args));
            } catch (Throwable t) {
                say(line[0] + " failed " + String.valueOf(t).replace('\n', ' '));
            }
        });
    }

    private static synchronized void say(String line) {
        System.out.println(line);
        System.out.flush();
    }
}
