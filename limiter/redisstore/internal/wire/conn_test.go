package wire

import (
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weir-proxy/weir/test/redistest"
	"github.com/weir-proxy/weir/test/rounds"
)

// A connection is what the client's own are: logged in, in the client's database. Commands
// go by it as AppendCall writes them, and replies come in their order.
func TestConn_IsTheClients(t *testing.T) {
	server := redistest.Start(t, "--requirepass", "secret")
	node := redis.NewClient(&redis.Options{Addr: server.Addr, Password: "secret", DB: 3})
	defer node.Close()
	c, err := connect(t.Context(), node)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	eval := string(AppendBulk(AppendBulk(nil, "EVAL"), "redis.call('SET', KEYS[1], ARGV[1]..ARGV[2]); return {#KEYS, #ARGV, tonumber(ARGV[2])}"))
	out := AppendCall(nil, eval, []string{"a key\r\n"}, []any{[]byte("\x00\r\n"), int64(-7)})
	out = AppendCall(out, eval, []string{"k", ""}, []any{"text", 8})
	if _, err := c.Write(out); err != nil {
		t.Fatal(err)
	}
	in, p := NewReader(c), &Reply{}
	for _, want := range [][]int64{{1, 2, -7}, {2, 2, 8}} {
		if err := in.Read(p); err != nil || p.Err != nil || !slices.Equal(p.Ints, want) {
			t.Fatalf("%v, %v, %v; want %v", p.Ints, p.Err, err, want)
		}
	}
	if got, err := node.Get(t.Context(), "a key\r\n").Result(); got != "\x00\r\n-7" {
		t.Errorf("in the client's database: %q, %v", got, err)
	}
}

// A connection must be replaced once it is as old as the client's may become, once it is
// marked, and once another master is known.
func TestDialer_ReplacesConnections(t *testing.T) {
	marked := &Conn{remote: "a:1"}
	marked.MarkStale()
	for name, c := range map[string]struct {
		conn   *Conn
		master string
		want   bool
	}{
		"no life is set":    {&Conn{remote: "a:1"}, "", false},
		"its life is over":  {&Conn{expiresAt: time.Now().Add(-time.Hour)}, "", true},
		"its life goes on":  {&Conn{expiresAt: time.Now().Add(time.Hour)}, "", false},
		"it is stale":       {marked, "", true},
		"it has the master": {&Conn{remote: "a:1"}, "a:1", false},
		"there is another":  {&Conn{remote: "a:1"}, "b:1", true},
	} {
		d := Dialer{}
		if c.master != "" {
			d.Masters = &Masters{}
			d.Masters.Set(c.master)
		}
		if got := d.MustReplace(c.conn); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

// Reading ends with the first error that a connection was aborted with.
func TestConn_AbortSaysWhy(t *testing.T) {
	near, far := net.Pipe()
	defer far.Close()
	c := &Conn{Conn: near}
	c.Abort(redis.ErrClosed)
	c.Abort(net.ErrClosed)
	_, err := c.Read(make([]byte, 1))
	if err == nil || c.ReadError(err) != redis.ErrClosed {
		t.Errorf("%v, %v", err, c.ReadError(err))
	}
}

// A list of integers is read into the Reply, and costs no memory.
func TestReader_AllocatesNothing(t *testing.T) {
	const n = 1000
	r, p := NewReader(strings.NewReader(strings.Repeat("*4\r\n:1800000000000\r\n:1\r\n:4\r\n:0\r\n", 5*(n+1)))), &Reply{}
	if got := rounds.Allocations(n, func() { _ = r.Read(p) }); got != 0 || len(p.Ints) != 4 {
		t.Errorf("%v allocations for a reply of %d integers", got, len(p.Ints))
	}
}
