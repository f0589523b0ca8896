package redisstore

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weir-proxy/weir/limiter"
	"github.com/weir-proxy/weir/test/await"
	"github.com/weir-proxy/weir/test/redistest"
	"github.com/weir-proxy/weir/test/sockettest"
)

// A speaker is a server that answers script calls as its test says; the rest of what a
// client sends, it answers as Redis does.
type speaker struct {
	addr string
	wg   sync.WaitGroup

	mu     sync.Mutex // guards what follows
	answer func(conn, call int) string
	conns  []net.Conn
	calls  int
}

// granted is what a script answers for one claim.
const granted = "*4\r\n:1800000000000\r\n:1\r\n:4\r\n:0\r\n"

// newSpeaker has script calls answered by answer, which is told by their numbers from 1
// on; an empty answer is none.
func newSpeaker(t *testing.T, answer func(conn, call int) string) *speaker {
	t.Helper()
	l := sockettest.Listen(t)
	s := &speaker{addr: l.Addr().String(), answer: answer}
	s.wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			s.wg.Go(func() { s.serve(c) })
		}
	})
	t.Cleanup(func() { l.Close(); s.cut(); s.wg.Wait() })
	return s
}

func (s *speaker) serve(c net.Conn) {
	defer c.Close()
	s.mu.Lock()
	s.conns = append(s.conns, c)
	s.mu.Unlock()
	in, number := bufio.NewReader(c), 0
	for {
		_, words, err := redistest.ReadCommand(in)
		if err != nil || len(words) == 0 {
			return
		}
		said := "+OK\r\n"
		switch strings.ToLower(words[0]) {
		case "hello":
			said = "-ERR unknown command\r\n"
		case "ping":
			said = "+PONG\r\n"
		case "cluster": // it has all slots
			host, port, _ := net.SplitHostPort(s.addr)
			said = fmt.Sprintf("*1\r\n*3\r\n:0\r\n:16383\r\n*2\r\n$%d\r\n%s\r\n:%s\r\n", len(host), host, port)
		case "evalsha", "eval":
			s.mu.Lock()
			s.calls++
			if number == 0 {
				number = s.calling()
			}
			said = s.answer(number, s.calls)
			s.mu.Unlock()
		}
		if _, err := io.WriteString(c, said); err != nil {
			return
		}
	}
}

// calling is how many connections there were.
func (s *speaker) calling() int { return len(s.conns) }

// cut ends all connections.
func (s *speaker) cut() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.conns {
		c.Close()
	}
}

// called is how many script calls there were.
func (s *speaker) called() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.calls
}

// store is a store at s.
func (s *speaker) store(t *testing.T, o Options, c ClientConfig) *Store {
	t.Helper()
	return storeAt(t, s.addr, o, c)
}

// storeAt is a store at addr that remembers no refusals, with the time that a busy machine takes unless o and c say otherwise.
func storeAt(t *testing.T, addr string, o Options, c ClientConfig) *Store {
	t.Helper()
	c.Addrs, c.Timeout = []string{addr}, cmp.Or(c.Timeout, patient)
	client, err := NewClient(c)
	if err != nil {
		t.Fatal(err)
	}
	o.CachedRefusals, o.Timeout = -1, cmp.Or(o.Timeout, patient)
	store := New(client, o)
	t.Cleanup(func() { store.Close(); client.Close() })
	return store
}

// is asks about the queue while nobody changes it.
func (p *pipeline) is(so func(q *queue) bool) func() bool {
	return func() bool {
		p.queue.mu.Lock()
		defer p.queue.mu.Unlock()
		return so(&p.queue)
	}
}

func five() []limiter.Claim {
	return []limiter.Claim{{Limit: bucketOf("l", 5), Key: limiter.KeyOf("k"), Cost: 1}}
}

func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	await.Until(t, what, holds)
}

// alone is a client whose connections live for so long.
func alone(t *testing.T, addr string, life time.Duration) *redis.Client {
	client := redis.NewClient(&redis.Options{Addr: addr, ConnMaxLifetime: life, MaxRetries: -1})
	t.Cleanup(func() { client.Close() })
	return client
}

func must(t *testing.T, s *Store) limiter.Decision {
	t.Helper()
	var d limiter.Decision
	if err := s.Take(t.Context(), five(), &d); err != nil || !d.Allowed {
		t.Fatal(fmt.Sprintf("%+v", d), err)
	}
	return d
}

// A node of a cluster may have run a script of which the reply is lost: it is not sent again. One that was refused for now is.
func TestNewClient_SendsWhatANodeMayHaveRunOnce(t *testing.T) {
	for answer, want := range map[string]int{"": 1, "$5\r\ncut": 1, "-TRYAGAIN keys move\r\n": 2} {
		s := newSpeaker(t, func(_, call int) string {
			if call > 1 {
				return ":1\r\n"
			}
			return answer
		})
		client, err := NewClient(ClientConfig{Mode: Cluster, Addrs: []string{s.addr}, Timeout: 100 * time.Millisecond})
		if err != nil {
			t.Fatal(err)
		}
		err = client.Eval(t.Context(), "return 1", []string{"k"}).Err()
		if sent := s.called(); sent != want || (err == nil) != (want == 2) {
			t.Errorf("first reply %q: sent %d times, %v", answer, sent, err)
		}
		client.Close()
	}
}

// A master that is gone gets no calls, not one for each slot either.
func TestCallsBySlot_OfAMasterThatIsGone(t *testing.T) {
	s := newSpeaker(t, func(_, call int) string {
		if call == 1 {
			return "-ERR Error compiling script\r\n" // as Redis before version 7
		}
		return granted
	})
	store := s.store(t, Options{}, ClientConfig{Mode: Cluster})
	two := append(five(), five()...)
	two[1].Key = limiter.KeyOf("other")
	var d limiter.Decision
	if err := store.Take(t.Context(), two, &d); err != nil || len(store.CallsBySlot()) != 1 {
		t.Fatalf("%v, calls by slot at %v; want one master", err, store.CallsBySlot())
	}
	s.cut()
	eventually(t, "no master is named that is gone", func() bool { return len(store.CallsBySlot()) == 0 })
}

// A client closes what it has of a node that leaves its cluster, and connects anew to one that comes back. Its new Redis
// knows no scripts, and gets them.
func TestResend_ToAMasterThatHasComeBack(t *testing.T) {
	s := newSpeaker(t, func(_, call int) string {
		if call == 2 {
			return "-NOSCRIPT No matching script\r\n"
		}
		return "*6\r\n:1800000000000\r\n:1\r\n:4\r\n:0\r\n:4\r\n:0\r\n"
	})
	store := s.store(t, Options{}, ClientConfig{Mode: Cluster})
	two := append(five(), five()...)
	two[1].Key = limiter.KeyOf("other")
	var d limiter.Decision
	for i := range 2 {
		if err := store.Take(t.Context(), two, &d); err != nil || !d.Allowed {
			t.Fatalf("request %d: %+v, %v", i+1, d, err)
		}
		p, err := store.pipelineFor(t.Context(), two)
		if err != nil {
			t.Fatal(err)
		}
		p.dialer.Node = alone(t, s.addr, 0)
		p.dialer.Node.Close()
	}
}
