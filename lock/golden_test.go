package lock

import (
	"context"
	"encoding/hex"
	"fmt"
	"sort"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// A tape hears every message of a server.
type tape struct {
	sub *redis.PubSub
}

func (w *world) tape() *tape {
	w.t.Helper()
	sub := w.eye.PSubscribe(ctxOf(w.t), "*")
	if _, err := sub.Receive(ctxOf(w.t)); err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { sub.Close() })
	return &tape{sub}
}

// next is the next message as "channel message".
func (tp *tape) next(t *testing.T) string {
	t.Helper()
	m, err := tp.sub.ReceiveMessage(ctxOf(t))
	if err != nil {
		t.Fatal(err)
	}
	return m.Channel + " " + m.Payload
}

// picture writes down all keys of the server: name, type, content, and whether
// the key ends by itself. Locker ids become ID1, ID2… Times in scores become
// the seconds from now, rounded.
func (w *world) picture(lockers ...*Locker) string {
	w.t.Helper()
	ctx := ctxOf(w.t)
	keys, err := w.eye.Keys(ctx, "*").Result()
	if err != nil {
		w.t.Fatal(err)
	}
	var names []string
	for i, l := range lockers {
		names = append(names, l.id, "ID"+strconv.Itoa(i+1))
	}
	known := strings.NewReplacer(names...)
	var lines []string
	for _, key := range keys {
		end := "stays"
		if w.eye.PTTL(ctx, key).Val() > 0 {
			end = "ends"
		}
		lines = append(lines, known.Replace(key)+" "+w.content(ctx, key, known)+" "+end+"\n")
	}
	sort.Strings(lines)
	return strings.Join(lines, "")
}

func (w *world) content(ctx context.Context, key string, known *strings.Replacer) string {
	switch kind := w.eye.Type(ctx, key).Val(); kind {
	case "hash":
		var fields []string
		for f, v := range w.eye.HGetAll(ctx, key).Val() {
			fields = append(fields, known.Replace(f)+"="+v)
		}
		sort.Strings(fields)
		return "hash " + strings.Join(fields, " ")
	case "list":
		return "list " + known.Replace(strings.Join(w.eye.LRange(ctx, key, 0, -1).Val(), " "))
	case "zset":
		var members []string
		for _, z := range w.eye.ZRangeWithScores(ctx, key, 0, -1).Val() {
			in := time.Until(time.UnixMilli(int64(z.Score))).Round(10 * time.Second)
			member := z.Member.(string)
			if len(member) == 16 {
				member = "hex:" + hex.EncodeToString([]byte(member))
			}
			members = append(members, fmt.Sprintf("%s@%v", known.Replace(member), in))
		}
		sort.Strings(members)
		return "zset " + strings.Join(members, " ")
	case "string":
		return "string " + known.Replace(w.eye.Get(ctx, key).Val())
	default:
		return kind
	}
}

func same(t *testing.T, what, got, want string) {
	t.Helper()
	want = strings.TrimLeft(want, "\n")
	if got != want {
		t.Errorf("%s:\ngot:\n%s\nwant:\n%s", what, got, want)
	}
}

func TestGolden_Reentrant(t *testing.T) {
	w := newWorld(t)
	l := w.locker()
	tp := w.tape()
	h := locked(t, l.Reentrant("orders"))
	second, err := h.Reenter(ctxOf(t))
	if err != nil {
		t.Fatal(err)
	}
	same(t, "entered twice", w.picture(l), "orders hash ID1:1=2 ends\n")
	unlocked(t, second)
	same(t, "left once", w.picture(l), "orders hash ID1:1=1 ends\n")
	unlocked(t, h)
	same(t, "left", w.picture(l), "")
	same(t, "told", tp.next(t), "redisson_lock__channel:{orders} 0")
	unlocked(t, locked(t, l.Reentrant("my{tag}orders")))
	same(t, "told with a tag", tp.next(t), "redisson_lock__channel:my{tag}orders 0")
}

func TestGolden_Fenced(t *testing.T) {
	w := newWorld(t)
	l := w.locker()
	tp := w.tape()
	unlocked(t, locked(t, l.Fenced("orders")))
	same(t, "told", tp.next(t), "redisson_lock__channel:{orders} 0")
	h := locked(t, l.Fenced("orders"))
	same(t, "held", w.picture(l), fmt.Sprintf(`
orders hash ID1:2=1 ends
redisson_lock_token:{orders} string %d stays
`, h.Token()))
	unlocked(t, h)

	// Redisson counts by one; what it finds must be a number that can be raised.
	java := w.eye.Incr(ctxOf(t), "redisson_lock_token:{orders}").Val()
	h = locked(t, l.Fenced("orders"))
	if java <= 0 || h.Token() <= java {
		t.Errorf("token %d after Java's %d", h.Token(), java)
	}
	unlocked(t, h)
	far := int64(1) << 52 // beyond any clock
	w.eye.Set(ctxOf(t), "redisson_lock_token:{orders}", far, 0)
	h = locked(t, l.Fenced("orders"))
	if h.Token() != far+1 {
		t.Errorf("token %d after %d, want one more", h.Token(), far)
	}
	unlocked(t, h)
}

func TestGolden_Fair(t *testing.T) {
	w := newWorld(t)
	one, two := w.locker(), w.locker(WithPoll(4*time.Second))
	tp := w.tape()
	h := locked(t, one.Fair("orders"))
	same(t, "held", w.picture(one), "orders hash ID1:1=1 ends\n")
	second := beside(func() (*Hold, error) { return two.Fair("orders").Lock(ctxOf(t)) })
	eventually(t, "one waits", func() bool { return w.eye.LLen(ctxOf(t), "redisson_lock_queue:{orders}").Val() == 1 })
	third := beside(func() (*Hold, error) { return two.Fair("orders").Lock(ctxOf(t)) })
	eventually(t, "two wait", func() bool { return w.eye.LLen(ctxOf(t), "redisson_lock_queue:{orders}").Val() == 2 })
	same(t, "two wait", w.picture(one, two), `
orders hash ID1:1=1 ends
redisson_lock_queue:{orders} list ID2:1 ID2:2 ends
redisson_lock_timeout:{orders} zset ID2:1@5m30s ID2:2@10m30s ends
weir_lock_alive:{orders} zset ID2:1@10s ID2:2@10s ends
`)
	unlocked(t, h)
	h = second(t)
	same(t, "told", tp.next(t), "redisson_lock__channel:{orders}:"+h.Owner().String()+" 0")
	same(t, "one waits", w.picture(one, two), `
orders hash ID2:1=1 ends
redisson_lock_queue:{orders} list ID2:2 ends
redisson_lock_timeout:{orders} zset ID2:2@5m30s ends
weir_lock_alive:{orders} zset ID2:2@10s ends
`)
	unlocked(t, h)
	unlocked(t, third(t))
	same(t, "left", w.picture(), "")
}

func TestGolden_ReadWrite(t *testing.T) {
	w := newWorld(t)
	one, two := w.locker(), w.locker()
	tp := w.tape()
	r := locked(t, one.ReadWrite("orders").Read())
	r2, err := r.Reenter(ctxOf(t))
	if err != nil {
		t.Fatal(err)
	}
	r3 := locked(t, two.ReadWrite("orders").Read())
	same(t, "read", w.picture(one, two), `
orders hash ID1:1=2 ID2:1=1 mode=read ends
{orders}:ID1:1:rwlock_timeout:1 string 1 ends
{orders}:ID1:1:rwlock_timeout:2 string 1 ends
{orders}:ID2:1:rwlock_timeout:1 string 1 ends
`)
	unlocked(t, r2)
	unlocked(t, r3)
	same(t, "one reads", w.picture(one, two), `
orders hash ID1:1=1 mode=read ends
{orders}:ID1:1:rwlock_timeout:1 string 1 ends
`)
	unlocked(t, r)
	same(t, "told by the last reader", tp.next(t), "redisson_rwlock:{orders} 0")
	same(t, "left", w.picture(), "")

	rw := one.ReadWrite("orders")
	wr := locked(t, rw.Write())
	same(t, "write", w.picture(one), "orders hash ID1:2:write=1 mode=write ends\n")
	r = locked(t, rw.Read(), WithOwner(wr.Owner()))
	same(t, "write and read", w.picture(one), `
orders hash ID1:2:write=1 ID1:2=1 mode=write ends
{orders}:ID1:2:rwlock_timeout:1 string 1 ends
`)
	unlocked(t, wr)
	same(t, "told by the writer", tp.next(t), "redisson_rwlock:{orders} 1")
	same(t, "downgraded", w.picture(one), `
orders hash ID1:2=1 mode=read ends
{orders}:ID1:2:rwlock_timeout:1 string 1 ends
`)
	unlocked(t, r)
	same(t, "left", w.picture(), "")

	r = locked(t, one.ReadWrite("x{tag}").Read())
	same(t, "with a tag", w.picture(one), `
x{tag} hash ID1:3=1 mode=read ends
x{tag}:ID1:3:rwlock_timeout:1 string 1 ends
`)
	unlocked(t, r)
}

func TestGolden_Semaphore(t *testing.T) {
	w := newWorld(t)
	s := w.locker().Semaphore("orders")
	tp := w.tape()
	for _, want := range []bool{true, false} {
		if set, err := s.TrySetPermits(ctxOf(t), 5); err != nil || set != want {
			t.Fatalf("TrySetPermits = %v, %v", set, err)
		}
	}
	same(t, "told of the permits", tp.next(t), "redisson_sc:{orders} 5")
	same(t, "set", w.picture(), "orders string 5 stays\n")
	if err := s.Acquire(ctxOf(t), 3); err != nil {
		t.Fatal(err)
	}
	same(t, "taken", w.eye.Get(ctxOf(t), "orders").Val(), "2")
	if err := s.Release(ctxOf(t), 2); err != nil {
		t.Fatal(err)
	}
	same(t, "told of a release", tp.next(t), "redisson_sc:{orders} 4")
}

func TestGolden_Permits(t *testing.T) {
	w := newWorld(t)
	p := w.locker().Permits("orders")
	tp := w.tape()
	if _, err := p.TrySetPermits(ctxOf(t), 2); err != nil {
		t.Fatal(err)
	}
	same(t, "told of the permits", tp.next(t), "redisson_sc:{orders} 2")
	h := locked(t, p)
	if id := h.Owner().String(); len(id) != 32 {
		t.Errorf("permit %q, want 32 hexadecimal digits", id)
	}
	same(t, "taken", w.picture(), "orders string 1 stays\n{orders}:timeout zset hex:"+h.Owner().String()+"@30s stays\n")
	unlocked(t, h)
	same(t, "told of a release", tp.next(t), "redisson_sc:{orders} 2")
	same(t, "given back", w.picture(), "orders string 2 stays\n")
}

func TestGolden_Latch(t *testing.T) {
	w := newWorld(t)
	l := w.locker().Latch("orders")
	tp := w.tape()
	if set, err := l.TrySetCount(ctxOf(t), 2); err != nil || !set {
		t.Fatalf("TrySetCount = %v, %v", set, err)
	}
	same(t, "told of the count", tp.next(t), "redisson_countdownlatch__channel__{orders} 1")
	same(t, "set", w.picture(), "orders string 2 stays\n")
	for range 3 {
		if err := l.CountDown(ctxOf(t)); err != nil {
			t.Fatal(err)
		}
	}
	same(t, "told of zero", tp.next(t), "redisson_countdownlatch__channel__{orders} 0")
	if n := w.eye.Exists(ctxOf(t), "orders").Val(); n != 0 {
		t.Error("the count is still there at zero")
	}
	same(t, "the channel of a name with a tag", w.locker().Latch("a{b}c").channel, "redisson_countdownlatch__channel__{a{b}c}")
}

func TestGolden_Simple(t *testing.T) {
	w := newWorld(t)
	l := w.locker()
	h := locked(t, l.Simple("orders"))
	same(t, "held", w.picture(l), "orders string ID1:1 ends\n")
	unlocked(t, h)
	same(t, "left", w.picture(), "")
}

// A Java service that holds, renews, waits for and gives back a lock is played
// by the commands that it sends.
func TestGolden_AJavaHolderIsRespected(t *testing.T) {
	w := newWorld(t)
	const java = "8b0f2a6c-6b1d-4e0e-9c1a-0d9d6f5b7c11:57"
	w.eye.HSet(ctxOf(t), "orders", java, 2)
	w.eye.PExpire(ctxOf(t), "orders", 30*time.Second)
	lk := w.locker(WithPoll(time.Hour)).Reentrant("orders")
	refused(t, lk)
	got := beside(func() (*Hold, error) { return lk.Lock(ctxOf(t)) })
	eventually(t, "the waiter listens", func() bool { return w.listeners("redisson_lock__channel:{orders}") == 1 })
	same(t, "held by Java", w.eye.HGet(ctxOf(t), "orders", java).Val(), "2")
	w.eye.Del(ctxOf(t), "orders")
	w.eye.Publish(ctxOf(t), "redisson_lock__channel:{orders}", "0")
	unlocked(t, got(t))
}

func TestNames_AllKeysShareTheSlotOfTheName(t *testing.T) {
	w := newWorld(t, "--cluster-enabled", "yes")
	slot := func(key string) int64 {
		n, err := w.eye.ClusterKeySlot(ctxOf(t), key).Result()
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	for _, name := range []string{"a", "a b", "{a}", "x{a}y", "x{a}{b}", "x}{a}", "{a}}", "{{a}", "a:b"} {
		if err := checkName(name); err != nil {
			t.Errorf("checkName(%q) = %v", name, err)
			continue
		}
		for _, key := range []string{prefixed("redisson_lock__channel", name), suffixed(name, "timeout"), prefixed("redisson_lock_queue", name) + ":u:1"} {
			if got, want := slot(key), slot(name); got != want {
				t.Errorf("%q is in slot %d, %q in %d", key, got, name, want)
			}
		}
	}
}
