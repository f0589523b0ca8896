package locks

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weir-proxy/weir/lock"
	"github.com/weir-proxy/weir/test/rounds"
)

func TestKill9_TheLockIsFreeWithinItsLease(t *testing.T) {
	s, rdb := server(t)
	const lease = 3 * time.Second
	c := start(t, "hold", s.Addr, lease.String())
	owner := strings.TrimPrefix(c.says(), "holds ")
	l := process(t, s.Addr, lock.WithPollInterval(time.Hour))
	// It lives, for more than a lease.
	for end := time.Now().Add(lease + lease/4); time.Now().Before(end); {
		if ttl := rdb.PTTL(minute(t), "a").Val(); ttl <= 0 {
			t.Fatalf("TTL %v although the holder lives", ttl)
		}
	}
	c.signal(syscall.SIGKILL)
	killed := time.Now()
	ttl := rdb.PTTL(minute(t), "a").Val()
	h := held(t, l.Reentrant("a")) // nothing is published: the waiter knows the TTL
	if took := time.Since(killed); took < ttl-time.Millisecond {
		t.Errorf("free %v after the kill, sooner than the lease of which %v were left", took, ttl)
	}
	if h.Owner().String() == owner {
		t.Error("the dead process is still the owner")
	}
	released(t, h)
}

func TestStop_TheContextEndsBeforeAnyMoreWork(t *testing.T) {
	s, rdb := server(t)
	c := start(t, "hold", s.Addr, "300ms")
	c.says()
	c.signal(syscall.SIGSTOP)
	h := held(t, process(t, s.Addr).Reentrant("a"))
	next := time.Now()
	c.signal(syscall.SIGCONT)
	if got := c.says(); got != "ended "+lock.ErrLost.Error() {
		t.Errorf("the child says %q, want that its context ended with %v", got, lock.ErrLost)
	}
	nano, err := strconv.ParseInt(strings.TrimPrefix(c.says(), "worked "), 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	if late := time.Unix(0, nano).Sub(next); late > 0 {
		t.Errorf("the child began to work %v after the lock was another's", late)
	}
	if got := c.says(); got != "unlock "+lock.ErrLost.Error() {
		t.Errorf("the child says %q, want that unlocking is %v", got, lock.ErrLost)
	}
	if m := rdb.HGetAll(minute(t), "a").Val(); len(m) != 1 || m[h.Owner().String()] != "1" {
		t.Errorf("hash = %v, want the next owner's one hold", m)
	}
	released(t, h)
}

// A child is this very test binary as another process.
type child struct {
	t     *testing.T
	cmd   *exec.Cmd
	lines *bufio.Scanner
}

// start runs a role with its parameters. The child ends with the test.
func start(t *testing.T, role string, params ...string) *child {
	t.Helper()
	c := &child{t: t, cmd: exec.Command(os.Args[0])}
	c.cmd.Env = append(os.Environ(), "WEIR_LOCK_CHILD="+role, "WEIR_LOCK_PARAMS="+strings.Join(params, " "))
	c.cmd.Stderr = os.Stderr
	out, err := c.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	c.lines = bufio.NewScanner(out)
	if err := c.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		c.cmd.Process.Kill()
		c.cmd.Wait()
	})
	return c
}

// says waits for the child's next line.
func (c *child) says() string {
	c.t.Helper()
	if !c.lines.Scan() {
		c.t.Fatalf("the child ended: %v", c.lines.Err())
	}
	return c.lines.Text()
}

func (c *child) signal(s syscall.Signal) {
	c.t.Helper()
	if err := c.cmd.Process.Signal(s); err != nil {
		c.t.Fatal(err)
	}
}

// play is what a child does; it returns the exit code.
func play(role string) int {
	params := strings.Fields(os.Getenv("WEIR_LOCK_PARAMS"))
	var err error
	switch role {
	case "hold":
		err = playHold(params[0], params[1])
	case "fence":
		err = playFence(params[0], params[1], params[2])
	default:
		err = fmt.Errorf("no role %q", role)
	}
	if err != nil {
		fmt.Println("error", err)
		return 1
	}
	return 0
}

// playHold holds "a" with a watchdog, works while its context says that it may,
// and stops when it loses the lock.
func playHold(addr, lease string) error {
	d, err := time.ParseDuration(lease)
	if err != nil {
		return err
	}
	l := lock.New(client(addr), lock.WithWatchdog(d))
	hold, err := l.Reentrant("a").Lock(context.Background())
	if err != nil {
		return err
	}
	fmt.Println("holds", hold.Owner())
	// The clock is read before the context is asked: a process that is stopped
	// between the two sees the loss, while one that is stopped after both can do
	// no better than a fence.
	var last time.Time
	for now := time.Now(); hold.Context().Err() == nil; now = time.Now() {
		last = now
	}
	fmt.Println("ended", context.Cause(hold.Context()))
	fmt.Println("worked", last.UnixNano())
	fmt.Println("unlock", hold.Unlock(context.Background()))
	return nil
}

// playFence raises the number in the resource rounds times, each time under the
// fenced lock, and says how many the resource has accepted.
func playFence(addr, resource, rounds string) error {
	n, err := strconv.Atoi(rounds)
	if err != nil {
		return err
	}
	lk := lock.New(client(addr), lock.WithPollInterval(20*time.Millisecond), lock.WithCallTimeout(time.Second)).Fenced("a")
	r := newResource(client(resource))
	accepted := 0
	for range n {
		hold, err := lk.Lock(context.Background(), lock.WithLease(100*time.Millisecond))
		if err != nil {
			continue // a connection was cut
		}
		if ok, err := r.raise(context.Background(), hold.Token()); err != nil {
			return err
		} else if ok {
			accepted++
		}
		hold.Unlock(context.Background()) // lost holds say so; the fence has seen to it
	}
	fmt.Println("accepted", accepted)
	return nil
}

// A resource is a number that is read, raised outside and written back, in a
// server that knows nothing of the lock but the largest token it has seen.
type resource struct {
	rdb         *redis.Client
	read, write *redis.Script
}

func newResource(rdb *redis.Client) *resource {
	return &resource{rdb,
		redis.NewScript(`
			local seen = tonumber(redis.call('GET', 'token') or 0)
			if tonumber(ARGV[1]) < seen then return {0, 0} end
			redis.call('SET', 'token', ARGV[1])
			return {1, tonumber(redis.call('GET', 'number') or 0)}`),
		redis.NewScript(`
			if tonumber(ARGV[1]) < tonumber(redis.call('GET', 'token') or 0) then
				redis.call('INCR', 'refused')
				return 0
			end
			redis.call('SET', 'number', ARGV[2])
			return 1`),
	}
}

// raise adds one under the token; false says that the token was too old.
func (r *resource) raise(ctx context.Context, token int64) (bool, error) {
	reply, err := r.read.Run(ctx, r.rdb, nil, token).Int64Slice()
	if err != nil || reply[0] == 0 {
		return false, err
	}
	done, err := r.write.Run(ctx, r.rdb, nil, token, reply[1]+1).Int()
	return done == 1, err
}

// Three processes raise a number 10,000 times while locks are torn from them:
// deleted as by a failover that lost them, their holders stopped for longer than
// the lease, scripts flushed and connections killed. Every accepted write counts.
func TestFence_NoUpdateIsLost(t *testing.T) {
	rounds := rounds.Of(3_000)
	locks, rdb := server(t)
	data, eye := server(t)
	const children = 3
	var running []*child
	for range children {
		running = append(running, start(t, "fence", locks.Addr, data.Addr, strconv.Itoa(rounds/children+1)))
	}
	stop := make(chan struct{})
	var nemesis sync.WaitGroup
	nemesis.Go(func() { injectFaults(t, rdb, running, stop) })
	accepted := 0
	for _, c := range running {
		line := c.says()
		n, err := strconv.Atoi(strings.TrimPrefix(line, "accepted "))
		if err != nil {
			t.Errorf("the child says %q", line)
		}
		accepted += n
	}
	close(stop)
	nemesis.Wait()

	number, err := eye.Get(minute(t), "number").Int()
	if err != nil || number != accepted {
		t.Errorf("the number is %d (%v) after %d accepted writes: %d updates are lost", number, err, accepted, accepted-number)
	}
	turnedAway, _ := eye.Get(minute(t), "refused").Int()
	if turnedAway == 0 {
		t.Error("the fence has refused nothing: the faults did not bite")
	}
	t.Logf("%d of %d rounds accepted, %d late writes refused by the fence", accepted, rounds, turnedAway)
}

// injectFaults does harm every few milliseconds until stop.
func injectFaults(t *testing.T, rdb *redis.Client, running []*child, stop chan struct{}) {
	tick := time.NewTicker(7 * time.Millisecond)
	defer tick.Stop()
	ctx := context.Background()
	for n := 0; ; n++ {
		select {
		case <-stop:
			return
		case <-tick.C:
		}
		switch {
		case n%40 == 13:
			rdb.ScriptFlush(ctx)
		case n%40 == 26:
			rdb.Do(ctx, "client", "kill", "type", "normal", "skipme", "yes")
		case n%60 == 39:
			c := running[n/60%len(running)]
			c.signalIfAlive(syscall.SIGSTOP)
			select {
			case <-time.After(120 * time.Millisecond): // longer than the lease
			case <-stop:
			}
			c.signalIfAlive(syscall.SIGCONT)
		default:
			rdb.Del(ctx, "a")
		}
	}
}

// signalIfAlive is signal for a child that may have ended.
func (c *child) signalIfAlive(s syscall.Signal) { c.cmd.Process.Signal(s) }
