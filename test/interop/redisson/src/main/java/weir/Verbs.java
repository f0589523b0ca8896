package weir;

import static java.util.concurrent.TimeUnit.MILLISECONDS;

import java.util.Arrays;
import java.util.Collection;
import java.util.List;
import org.redisson.api.RCountDownLatch;
import org.redisson.api.RLock;
import org.redisson.api.RPermitExpirableSemaphore;
import org.redisson.api.RRateLimiter;
import org.redisson.api.RSemaphore;
import org.redisson.api.RateIntervalUnit;
import org.redisson.api.RateType;
import org.redisson.api.RedissonClient;

/** What a Player can be told to do. Times are in ms. */
final class Verbs {
    private final RedissonClient redisson;

    Verbs(RedissonClient redisson) {
        this.redisson = redisson;
    }

    Object play(String verb, String[] args) throws Exception {
        int dot = verb.indexOf('.');
        if (dot < 0) {
            return redisson.getId() + ":" + Thread.currentThread().getId(); // who am I
        }
        String what = verb.substring(dot + 1);
        switch (verb.substring(0, dot)) {
            case "semaphore":
                return semaphore(redisson.getSemaphore(args[0]), what, args);
            case "permits":
                return permits(redisson.getPermitExpirableSemaphore(args[0]), what, args);
            case "latch":
                return latch(redisson.getCountDownLatch(args[0]), what, args);
            case "rate":
                return rate(redisson.getRateLimiter(args[0]), what, args);
            default:
                return lock(find(verb.substring(0, dot), args[0]), what, args);
        }
    }

    /** The lock of a kind; several names are separated by commas. */
    private RLock find(String kind, String name) throws Exception {
        String[] names = name.split(",");
        switch (kind) {
            case "reentrant":
                return redisson.getLock(name);
            case "spin": // younger than the oldest Redisson, as some others are
                return (RLock) RedissonClient.class.getMethod("getSpinLock", String.class).invoke(redisson, name);
            case "fair":
                return redisson.getFairLock(name);
            case "read":
                return redisson.getReadWriteLock(name).readLock();
            case "write":
                return redisson.getReadWriteLock(name).writeLock();
            case "multi":
                return redisson.getMultiLock(Arrays.stream(names).map(redisson::getLock).toArray(RLock[]::new));
            case "red":
                return redisson.getRedLock(Arrays.stream(names).map(redisson::getLock).toArray(RLock[]::new));
            case "fenced": // younger than the oldest Redisson that this is compiled with
                return (RLock) RedissonClient.class.getMethod("getFencedLock", String.class).invoke(redisson, name);
            case "group":
                List<Object> values = Arrays.asList((Object[]) Arrays.copyOfRange(names, 1, names.length));
                return (RLock) RedissonClient.class.getMethod("getMultiLock", String.class, Collection.class)
                        .invoke(redisson, names[0], values);
            default:
                throw new IllegalArgumentException("no lock is " + kind);
        }
    }

    private static Object lock(RLock lock, String what, String[] args) throws Exception {
        switch (what) {
            case "lock":
                lock.lock();
                return "locked";
            case "lease":
                lock.lock(number(args[1]), MILLISECONDS);
                return "locked";
            case "try": // for so long
                return lock.tryLock(number(args[1]), MILLISECONDS);
            case "token":
                return Class.forName("org.redisson.api.RFencedLock").getMethod("lockAndGetToken").invoke(lock);
            case "unlock":
                lock.unlock();
                return "unlocked";
            case "force":
                return lock.forceUnlock();
            case "locked":
                return lock.isLocked();
            case "count":
                return lock.getHoldCount();
            case "ttl":
                return lock.remainTimeToLive();
            default:
                throw new IllegalArgumentException("no lock can " + what);
        }
    }

    private static Object semaphore(RSemaphore s, String what, String[] args) throws Exception {
        switch (what) {
            case "set":
                return s.trySetPermits((int) number(args[1]));
            case "take":
                s.acquire((int) number(args[1]));
                return "taken";
            case "try":
                return s.tryAcquire((int) number(args[1]));
            case "give":
                s.release((int) number(args[1]));
                return "given";
            default:
                return s.availablePermits();
        }
    }

    private static Object permits(RPermitExpirableSemaphore s, String what, String[] args) throws Exception {
        switch (what) {
            case "set":
                return s.trySetPermits((int) number(args[1]));
            case "take":
                return s.acquire();
            case "lease":
                return s.acquire(number(args[1]), MILLISECONDS);
            case "try":
                return s.tryAcquire();
            case "give":
                return s.tryRelease(args[1]);
            default:
                return s.availablePermits();
        }
    }

    private static Object latch(RCountDownLatch l, String what, String[] args) throws Exception {
        switch (what) {
            case "set":
                return l.trySetCount(number(args[1]));
            case "down":
                l.countDown();
                return "counted";
            case "await":
                l.await();
                return "open";
            default:
                return l.getCount();
        }
    }

    private static Object rate(RRateLimiter r, String what, String[] args) throws Exception {
        switch (what) {
            case "set":
                RateType type = args[3].equals("1") ? RateType.PER_CLIENT : RateType.OVERALL;
                return r.trySetRate(type, number(args[1]), number(args[2]), RateIntervalUnit.MILLISECONDS);
            case "take":
                return r.tryAcquire(number(args[1]));
            case "wait":
                return r.tryAcquire(number(args[1]), number(args[2]), MILLISECONDS);
            case "give": // younger than the oldest Redisson
                return RRateLimiter.class.getMethod("release", long.class).invoke(r, number(args[1]));
            case "fill": // one by one
                long granted = 0;
                for (long n = number(args[1]); n > 0; n--) {
                    granted += r.tryAcquire(1) ? 1 : 0;
                }
                return granted;
            case "flood":
                return flood(r, number(args[1]));
            default:
                return r.availablePermits();
        }
    }

    /** Takes single permits for so long; for each, the ms before and after the call. */
    private static String flood(RRateLimiter r, long millis) {
        StringBuilder granted = new StringBuilder();
        long end = System.currentTimeMillis() + millis;
        for (long before = System.currentTimeMillis(); before < end; before = System.currentTimeMillis()) {
            if (r.tryAcquire(1)) {
                granted.append(before).append('-').append(System.currentTimeMillis()).append(',');
            }
        }
        return granted.toString();
    }

    private static long number(String s) {
        return Long.parseLong(s);
    }
}
