//go:build java

package redisson

import (
	"bufio"
	"flag"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/weir-proxy/weir/test/await"
	"github.com/weir-proxy/weir/test/redistest"
)

var record = flag.Bool("record", false, "write what Redisson leaves in Redis to lock/testdata/redisson")

// fixtures is where the stories stand that package lock is held to.
const fixtures = "../../../lock/testdata/redisson/"

// A recording is one Java process on a server of its own, whose doings are a transcript.
type recording struct {
	*testServer
	*java
	transcript *redistest.Transcript
}

func newRecording(t *testing.T, actors ...string) *recording {
	t.Helper()
	w := newTestServer(t)
	s := &recording{testServer: w, java: newJava(t, w.server.Addr), transcript: redistest.NewTranscript(t, w.eye)}
	for i, actor := range actors {
		s.transcript.Call(s.owner(actor), string(rune('A'+i)))
	}
	return s
}

// keys writes down the keys, without those that only help unlocks to be sent
// twice.
func (r *recording) keys(step string) {
	r.java.t.Helper()
	r.transcript.Keys(step, "redisson_unlock_latch:")
}

// publishes writes down what was said on a channel by what was done last.
func (r *recording) publishes(step string) {
	r.java.t.Helper()
	r.transcript.Published(step)
}

// end compares the transcript with the one in the file, or writes it.
func (r *recording) end(name string) {
	r.java.t.Helper()
	if *record {
		r.transcript.Record(fixtures + name + ".txt")
	}
	r.transcript.Same(fixtures + name + ".txt")
}

func TestRecord_Reentrant(t *testing.T) {
	s := newRecording(t, "ann")
	s.do("locked", "ann", "reentrant.lock", "orders")
	s.keys("held")
	s.do("locked", "ann", "reentrant.lock", "orders")
	s.keys("entered twice")
	s.do("unlocked", "ann", "reentrant.unlock", "orders")
	s.keys("left once")
	s.do("unlocked", "ann", "reentrant.unlock", "orders")
	s.publishes("told")
	s.keys("left")
	s.do("locked", "ann", "reentrant.lock", "my{tag}orders")
	s.keys("held with a tag")
	s.do("unlocked", "ann", "reentrant.unlock", "my{tag}orders")
	s.publishes("told with a tag")
	s.end("reentrant")
}

func TestRecord_Force(t *testing.T) {
	for _, kind := range []string{"reentrant", "fair", "read", "write"} {
		s := newRecording(t, "ann", "bob")
		s.do("false", "ann", kind+".locked", "orders")
		s.do("-2", "ann", kind+".ttl", "orders")
		s.do("locked", "ann", kind+".lock", "orders")
		s.do("true", "bob", kind+".locked", "orders")
		if kind == "fair" { // it tells the first who waits
			s.begin("bob", "fair.lock", "orders")
			s.listens(1, "redisson_lock__channel:{orders}:")
		}
		s.do("true", "cid", kind+".force", "orders")
		s.publishes("told by force")
		if kind == "fair" {
			await.Until(t, "the next one has it", func() bool { return s.eye.Exists(t.Context(), "redisson_lock_queue:{orders}").Val() == 0 })
		}
		s.keys("taken away")
		s.end("force_" + kind)
	}
}

func TestRecord_Fair(t *testing.T) {
	s := newRecording(t, "ann", "bob", "cid")
	s.do("locked", "ann", "fair.lock", "orders")
	s.keys("held")
	bob := s.begin("bob", "fair.lock", "orders")
	s.listens(1, "redisson_lock__channel:{orders}:")
	cid := s.begin("cid", "fair.lock", "orders")
	s.listens(2, "redisson_lock__channel:{orders}:")
	await.Until(t, "two queue", func() bool { return s.eye.LLen(t.Context(), "redisson_lock_queue:{orders}").Val() == 2 })
	s.keys("two wait")
	s.do("unlocked", "ann", "fair.unlock", "orders")
	s.publishes("told")
	bob.is("locked")
	s.keys("one waits")
	s.do("unlocked", "bob", "fair.unlock", "orders")
	s.publishes("told the next")
	cid.is("locked")
	s.keys("nobody waits")
	s.do("unlocked", "cid", "fair.unlock", "orders")
	s.keys("left")
	s.end("fair")
}

func TestRecord_Fenced(t *testing.T) {
	if older(t) {
		return // no fenced locks yet
	}
	s := newRecording(t, "ann")
	s.eye.Set(t.Context(), "redisson_lock_token:{orders}", 41, 0)
	s.transcript.Call(s.begin("ann", "fenced.token", "orders").wait(), "TOKEN")
	s.keys("held")
	s.do("unlocked", "ann", "fenced.unlock", "orders")
	s.publishes("told")
	s.keys("left")
	s.end("fenced")
}

func TestRecord_ReadWrite(t *testing.T) {
	s := newRecording(t, "ann", "bob")
	s.do("locked", "ann", "read.lock", "orders")
	s.do("locked", "ann", "read.lock", "orders")
	s.do("locked", "bob", "read.lock", "orders")
	s.keys("two read")
	s.do("unlocked", "ann", "read.unlock", "orders")
	s.do("unlocked", "bob", "read.unlock", "orders")
	s.keys("one reads")
	s.do("unlocked", "ann", "read.unlock", "orders")
	s.publishes("told by the last reader")
	s.keys("nobody reads")
	s.do("locked", "ann", "write.lock", "orders")
	s.keys("one writes")
	s.do("locked", "ann", "write.lock", "orders")
	s.keys("entered twice")
	s.do("unlocked", "ann", "write.unlock", "orders")
	s.do("locked", "ann", "read.lock", "orders")
	s.keys("one writes and reads")
	s.do("unlocked", "ann", "read.unlock", "orders")
	s.do("unlocked", "ann", "write.unlock", "orders")
	s.publishes("told by the writer")
	s.keys("left")
	s.do("locked", "ann", "read.lock", "x{tag}")
	s.keys("read with a tag")
	s.do("unlocked", "ann", "read.unlock", "x{tag}")
	s.publishes("told with a tag")
	s.end("readwrite")
}

func TestRecord_Downgrade(t *testing.T) {
	s := newRecording(t, "ann")
	s.do("locked", "ann", "write.lock", "orders")
	s.do("locked", "ann", "read.lock", "orders")
	s.do("unlocked", "ann", "write.unlock", "orders")
	s.keys("goes on as a reader")
	s.do("unlocked", "ann", "read.unlock", "orders")
	s.keys("left")
	s.end("downgrade")
}

func TestRecord_Semaphore(t *testing.T) {
	s := newRecording(t)
	s.do("true", "ann", "semaphore.set", "orders", 5)
	s.publishes("told of the permits")
	s.keys("set")
	s.do("taken", "ann", "semaphore.take", "orders", 3)
	s.keys("taken")
	s.do("given", "ann", "semaphore.give", "orders", 2)
	s.publishes("told of a release")
	s.keys("given back")
	s.end("semaphore")
}

func TestRecord_Permits(t *testing.T) {
	s := newRecording(t)
	s.do("true", "ann", "permits.set", "orders", 2)
	s.publishes("told of the permits")
	s.keys("set")
	id := s.begin("ann", "permits.lease", "orders", 30_000).wait()
	s.transcript.Call("hex:"+id, "PERMIT")
	s.keys("taken")
	s.do("true", "ann", "permits.give", "orders", id)
	s.publishes("told of a release")
	s.keys("given back")
	s.end("permits")
}

func TestRecord_Latch(t *testing.T) {
	s := newRecording(t)
	s.do("true", "ann", "latch.set", "orders", 2)
	s.publishes("told of the count")
	s.keys("set")
	s.do("counted", "ann", "latch.down", "orders")
	s.keys("counted once")
	s.do("counted", "ann", "latch.down", "orders")
	s.publishes("told of zero")
	s.keys("open")
	s.do("true", "ann", "latch.set", "a{b}c", 1)
	s.publishes("told with a tag")
	s.end("latch")
}

func TestRecord_Group(t *testing.T) {
	if older(t) {
		return // no locks of groups yet
	}
	s := newRecording(t, "ann")
	s.do("locked", "ann", "group.lock", "orders,one,two")
	s.keys("held")
	s.do("locked", "ann", "group.lock", "orders,one,two")
	s.keys("entered twice")
	s.do("unlocked", "ann", "group.unlock", "orders,one,two")
	s.keys("left once")
	s.do("unlocked", "ann", "group.unlock", "orders,one,two")
	s.publishes("told")
	s.keys("left")
	long := "orders," + strings.Repeat("0123456789", 9) + ",grün"
	s.do("locked", "ann", "group.lock", long)
	s.keys("held with long values")
	s.do("true", "bob", "group.locked", long)
	s.do("false", "bob", "group.force", long) // true is for one value only
	s.publishes("told by force")
	s.keys("taken away")
	s.end("group")
}

// An unlock of Redisson's leaves its answer in a key for a moment, so that it
// can be sent twice: this is what MONITOR shows of it. (3.52 means to delete it
// but misses its name; it ends by itself.)
func TestRecord_UnlockLatch(t *testing.T) {
	if older(t) {
		return // its unlocks are not sent twice
	}
	s := newRecording(t, "ann")
	s.do("locked", "ann", "reentrant.lock", "orders")
	next := monitor(t, s.server.Addr)
	s.do("unlocked", "ann", "reentrant.unlock", "orders")
	set := ""
	for !strings.Contains(set, `lua] "set" "redisson_unlock_latch:{orders}:`) {
		set = next()
	}
	_, set, _ = strings.Cut(set, `lua] `)
	words := strings.Split(strings.ReplaceAll(set, `"`, ""), " ")
	if len(words) != 5 || len(words[1]) != len("redisson_unlock_latch:{orders}:")+32 || words[2] != "1" || words[3] != "px" {
		t.Errorf("the latch is set by %q, want the answer, 1, with an end", words)
	}
	if ms := number(t, words[4]); ms < 10_000 || ms > 30_000 {
		t.Errorf("the latch lives for %d ms", ms)
	}
}

// monitor begins to watch the commands of a server; the result is the next one.
func monitor(t *testing.T, addr string) func() string {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	conn.SetDeadline(time.Now().Add(soon))
	io.WriteString(conn, "MONITOR\r\n")
	lines := bufio.NewScanner(conn)
	next := func() string {
		t.Helper()
		if !lines.Scan() {
			t.Fatalf("the monitor ended: %v", lines.Err())
		}
		return lines.Text()
	}
	if got := next(); got != "+OK" {
		t.Fatalf("MONITOR = %q", got)
	}
	return next
}
