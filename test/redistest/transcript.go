package redistest

import (
	"context"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// A Transcript writes down what a program leaves on a server and says on its
// channels, step by step, so that two programs can be compared by the letter:
// each step is a line "-- what happened --" and lines of keys or messages.
type Transcript struct {
	tb    testing.TB
	rdb   redis.UniversalClient
	tape  *redis.PubSub
	names []string // what stands in Redis and what the transcript calls it, in turn
	stays []string // what keys begin with whose end is not told
	text  strings.Builder
}

// NewTranscript listens to all channels of rdb's server, until the test ends. Nobody
// else should use the server.
func NewTranscript(tb testing.TB, rdb redis.UniversalClient) *Transcript {
	tb.Helper()
	s := &Transcript{tb: tb, rdb: rdb}
	ctx := s.context()
	s.tape = rdb.PSubscribe(ctx, "*")
	tb.Cleanup(func() { s.tape.Close() })
	if _, err := s.tape.Receive(ctx); err != nil {
		tb.Fatal(err)
	}
	return s
}

func (t *Transcript) context() context.Context {
	ctx, cancel := context.WithTimeout(t.tb.Context(), time.Minute)
	t.tb.Cleanup(cancel)
	return ctx
}

// Call makes the transcript say name for what is different in each run: owners,
// permits, tokens.
func (t *Transcript) Call(owner, name string) { t.names = append(t.names, owner, name) }

// Stays makes the transcript say that keys which begin with prefix stay, although
// they may end by themselves.
func (t *Transcript) Stays(prefix string) { t.stays = append(t.stays, prefix) }

// Keys writes down all keys of the server: name, type, content, and whether the
// key ends by itself. Scores and fields that are times are shown as the time from now,
// rounded to ten seconds. Keys that begin with one of but are left out.
func (t *Transcript) Keys(step string, but ...string) {
	t.tb.Helper()
	ctx := t.context()
	keys := t.all(ctx, but)
	known := strings.NewReplacer(t.names...)
	lines := make([]string, 0, len(keys))
	for _, key := range keys {
		end := "stays"
		if t.rdb.PTTL(ctx, key).Val() > 0 && !begins(key, t.stays) {
			end = "ends"
		}
		lines = append(lines, known.Replace(key)+" "+t.content(ctx, key, known)+" "+end)
	}
	sort.Strings(lines)
	t.step(step, lines)
}

func (t *Transcript) all(ctx context.Context, but []string) []string {
	t.tb.Helper()
	keys, err := t.rdb.Keys(ctx, "*").Result()
	if err != nil {
		t.tb.Fatal(err)
	}
	return slices.DeleteFunc(keys, func(key string) bool {
		return begins(key, but)
	})
}

func begins(key string, prefixes []string) bool {
	return slices.ContainsFunc(prefixes, func(prefix string) bool { return strings.HasPrefix(key, prefix) })
}

func (t *Transcript) content(ctx context.Context, key string, known *strings.Replacer) string {
	switch kind := t.rdb.Type(ctx, key).Val(); kind {
	case "hash":
		var fields []string
		for f, v := range t.rdb.HGetAll(ctx, key).Val() {
			if at, err := strconv.ParseInt(v, 10, 64); err == nil && strings.HasSuffix(f, "time") {
				v = "@" + fromNow(at)
			}
			fields = append(fields, known.Replace(f)+"="+known.Replace(v))
		}
		sort.Strings(fields)
		return "hash " + strings.Join(fields, " ")
	case "list":
		return "list " + known.Replace(strings.Join(t.rdb.LRange(ctx, key, 0, -1).Val(), " "))
	case "zset":
		var members []string
		for _, z := range t.rdb.ZRangeWithScores(ctx, key, 0, -1).Val() {
			members = append(members, known.Replace(readable(z.Member.(string)))+"@"+fromNow(int64(z.Score)))
		}
		sort.Strings(members)
		return "zset " + strings.Join(members, " ")
	case "string":
		return "string " + known.Replace(t.rdb.Get(ctx, key).Val())
	default:
		return kind
	}
}

// fromNow is how far ms since 1970 are from now, rounded.
func fromNow(ms int64) string {
	return time.Until(time.UnixMilli(ms)).Round(10 * time.Second).String()
}

// readable is a member as it stands, or its bytes if they are no text.
func readable(member string) string {
	for _, c := range []byte(member) {
		if c < ' ' || c > '~' {
			return "hex:" + hex.EncodeToString([]byte(member))
		}
	}
	return member
}

// Published writes down the next message on any channel.
func (t *Transcript) Published(step string) {
	t.tb.Helper()
	m, err := t.tape.ReceiveMessage(t.context())
	if err != nil {
		t.tb.Fatalf("%s: no message: %v", step, err)
	}
	t.step(step, []string{strings.NewReplacer(t.names...).Replace(m.Channel) + " " + m.Payload})
}

// Pass checks the next message on any channel, and leaves it out of the transcript.
func (t *Transcript) Pass(want string) {
	t.tb.Helper()
	if m, err := t.tape.ReceiveMessage(t.context()); err != nil || m.Payload != want {
		t.tb.Fatalf("message %v, %v; want %q", m, err, want)
	}
}

func (t *Transcript) step(step string, lines []string) {
	fmt.Fprintf(&t.text, "-- %s --\n", step)
	for _, line := range lines {
		t.text.WriteString(line + "\n")
	}
}

// Text is the transcript so far.
func (t *Transcript) Text() string { return t.text.String() }

// Record writes the transcript into a file, to be compared with later.
func (t *Transcript) Record(path string) {
	t.tb.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.tb.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(t.text.String()), 0o600); err != nil {
		t.tb.Fatal(err)
	}
}

// Same fails the test unless the transcript is the one in the file.
func (t *Transcript) Same(path string) {
	t.tb.Helper()
	want, err := os.ReadFile(path)
	if err != nil {
		t.tb.Fatal(err)
	}
	if got := t.text.String(); got != string(want) {
		t.tb.Errorf("not the transcript of %s:\ngot:\n%s\nwant:\n%s", path, got, want)
	}
}
