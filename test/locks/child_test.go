package locks

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/weir-proxy/weir/lock"
)

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
