package redisstore_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weir-proxy/weir/limiter"
	"github.com/weir-proxy/weir/limiter/redisstore"
	"github.com/weir-proxy/weir/test/redistest"
)

// What a process that is to be killed is told.
const (
	holdKey   = "WEIR_TEST_HOLD_KEY"   // before a script call for which of both keys it waits for its end
	holdAt    = "WEIR_TEST_HOLD_AT"    // before which of these calls
	holdAddrs = "WEIR_TEST_HOLD_ADDRS" // the cluster
	holdKeys  = "WEIR_TEST_HOLD_KEYS"  // which two keys it asks for
)

// pair is a request over two keys.
func pair(names ...string) []limiter.Claim {
	var claims []limiter.Claim
	for _, name := range names {
		c := claim(2, time.Hour, 1)[0]
		c.Key = limiter.KeyOf("pair", name)
		claims = append(claims, c)
	}
	return claims
}

// takeAndHold is the process that is to be killed: it decides one request, but
// before one of its script calls it says "held" and waits.
func takeAndHold() {
	at, err := strconv.Atoi(os.Getenv(holdAt))
	if err != nil {
		panic(err)
	}
	keys := strings.Split(os.Getenv(holdKeys), ",")
	h := &holder{key: []byte(limiter.KeyOf("pair", os.Getenv(holdKey)).String()), at: at, answered: make(chan struct{})}
	client := redis.NewClusterClient(&redis.ClusterOptions{
		Addrs: strings.Split(os.Getenv(holdAddrs), ","), Dialer: h.dial, MaxRedirects: 3,
		ReadTimeout: time.Minute, WriteTimeout: time.Minute,
	})
	store := redisstore.NewWithSlotClock(client, redisstore.Options{Timeout: time.Minute})
	var d limiter.Decision
	err = store.Take(context.Background(), pair(keys...), &d)
	store.Close() // what is given back has been sent
	fmt.Printf("decided %+v %v\n", d, err)
}

// A holder counts the script calls for a key and lets one of them never begin.
type holder struct {
	key      []byte
	at       int
	answered chan struct{} // closed when another script call has its reply

	mu      sync.Mutex // guards what follows
	calls   int
	replied bool
}

func (h *holder) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	c, err := (&net.Dialer{}).DialContext(ctx, network, addr)
	return &heldConn{Conn: c, holder: h}, err
}

// A heldConn is a connection that script calls are counted on.
type heldConn struct {
	net.Conn
	*holder
	asked atomic.Bool // a script call was sent
}

func (c *heldConn) Write(p []byte) (int, error) {
	if bytes.Contains(bytes.ToLower(p), []byte("evalsha")) || bytes.Contains(p, []byte("EVAL\r\n")) {
		c.mu.Lock()
		if bytes.Contains(p, c.key) {
			c.calls++
		}
		hold := bytes.Contains(p, c.key) && c.calls == c.at
		c.mu.Unlock()
		if hold {
			<-c.answered
			fmt.Println("held")
			_, _ = io.Copy(io.Discard, os.Stdin) // until we are killed, or who would do it has ended
			os.Exit(1)
		}
	}
	if bytes.Contains(bytes.ToLower(p), []byte("\r\neval")) { // again, where the script is unknown
		c.asked.Store(true)
	}
	return c.Conn.Write(p)
}

func (c *heldConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if n > 0 && p[0] == '*' && c.asked.Load() { // not that the script is unknown
		c.mu.Lock()
		defer c.mu.Unlock()
		if !c.replied {
			c.replied = true
			close(c.answered)
		}
	}
	return n, err
}

// A hold says before which script call for which of two keys a process is to be killed.
type hold struct {
	keys      []string
	key, call int
}

// killedBefore runs takeAndHold in a process of its own and kills it, as kill -9
// does, when it is about to make the script call that h names.
func killedBefore(t *testing.T, h hold, servers *redistest.Cluster) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, os.Args[0])
	cmd.Env = append(os.Environ(), holdKey+"="+h.keys[h.key], holdAt+"="+strconv.Itoa(h.call),
		holdAddrs+"="+strings.Join(servers.Addrs(), ","), holdKeys+"="+strings.Join(h.keys, ","))
	cmd.Stderr = t.Output()
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	defer stdin.Close()
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(stdout).ReadString('\n')
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	if line != "held\n" {
		t.Fatalf("the process says %q (%v), want that it is held", line, err)
	}
	if status, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); !ok || status.Signal() != syscall.SIGKILL {
		t.Fatalf("the process ended by %v, want a kill", cmd.ProcessState)
	}
}

// diesBetween: a process that is killed in the midst of a request over two nodes
// leaves what it had reserved until the window is over, and nothing else.
func diesBetween(t *testing.T, servers *redistest.Cluster, store *clocked) {
	client := store.client.(*redis.ClusterClient)
	for _, test := range []struct {
		name   string
		key    int // of the script call that never begins
		before int // which of its script calls: reserve, and give back if the other refused
		spent  int // permits of the other that are out already
	}{
		{"BeforeTheSecond", 1, 1, 0},
		{"BeforeGivingBack", 0, 2, 2},
	} {
		t.Run(test.name, func(t *testing.T) {
			store.now, store.told = 1_800_000_000_000, map[limiter.Key]int64{}
			// What earlier tests left ends by itself at any moment.
			if err := client.ForEachMaster(t.Context(), func(ctx context.Context, n *redis.Client) error { return n.FlushAll(ctx).Err() }); err != nil {
				t.Fatal(err)
			}
			keys := onTwoNodes(t, client, test.name)
			both := pair(keys...)
			first, second := both[:1], both[1:]
			left := func(claims []limiter.Claim, want int64) {
				t.Helper()
				var d limiter.Decision
				if err := store.Peek(t.Context(), claims, &d); err != nil || d.Outcomes[0].Remaining != want {
					t.Errorf("%+v (%v), want %d left", d, err, want)
				}
			}
			for range test.spent {
				var d limiter.Decision
				if err := store.Take(t.Context(), second, &d); err != nil || !d.Allowed {
					t.Fatal(d, err)
				}
			}
			left(first, 2)
			left(second, int64(2-test.spent))
			before := contents(t, client, first[0].Key)
			killedBefore(t, hold{keys, test.key, test.before}, servers)

			if after := contents(t, client, first[0].Key); !maps.Equal(before, after) {
				t.Errorf("beside the first key there was %q, is %q", before, after)
			}
			left(first, 1)
			left(second, int64(2-test.spent))
			store.advance(time.Hour - time.Millisecond)
			left(first, 1)
			store.advance(time.Millisecond)
			left(first, 2)
			left(second, 2)
		})
	}
}

// onTwoNodes finds two keys on different nodes, the one that is asked for first
// first.
func onTwoNodes(t *testing.T, client *redis.ClusterClient, salt string) []string {
	t.Helper()
	node := func(c limiter.Claim) string {
		master, err := client.MasterForKey(t.Context(), redisstore.WindowName(redisstore.DefaultPrefix, c.Limit.Name, c.Key)+":value")
		if err != nil {
			t.Fatal(err)
		}
		return master.Options().Addr
	}
	for i := 1; ; i++ {
		names := []string{salt + "0", salt + strconv.Itoa(i)}
		both := pair(names...)
		if node(both[0]) == node(both[1]) {
			continue
		}
		if both[0].Key.String() > both[1].Key.String() {
			names[0], names[1] = names[1], names[0]
		}
		return names
	}
}

// contents are all keys of the cluster with what they hold, but those of one.
func contents(t *testing.T, client *redis.ClusterClient, but limiter.Key) map[string]string {
	t.Helper()
	var mu sync.Mutex
	all := map[string]string{}
	err := client.ForEachMaster(t.Context(), func(ctx context.Context, n *redis.Client) error {
		keys, err := n.Keys(ctx, "*").Result()
		for _, key := range keys {
			if strings.Contains(key, but.String()) {
				continue
			}
			dump, err := n.Dump(ctx, key).Result()
			if errors.Is(err, redis.Nil) {
				continue // its time to live has just ended
			}
			if err != nil {
				return err
			}
			mu.Lock()
			all[key] = dump
			mu.Unlock()
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}
