package node

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	stdlog "log"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/rs/zerolog"

	"github.com/weir-proxy/weir/proxy/config"
	"github.com/weir-proxy/weir/test/await"
	"github.com/weir-proxy/weir/test/logtest"
)

func TestLog_LinesAreJSONWithTheTime(t *testing.T) {
	var out logtest.Log
	log := NewLog(&out, zerolog.InfoLevel)
	before := time.Now().UTC().Truncate(time.Millisecond)
	log.Info().Int("n", 1).Msg("first")
	log.Debug().Msg("below the level")
	log.Warn().Msg("second")
	log.Close()
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	if len(lines) != 2 {
		t.Fatalf("%d lines; want 2:\n%s", len(lines), out.String())
	}
	var line struct{ Level, Message, Time string }
	if err := json.Unmarshal([]byte(lines[0]), &line); err != nil || line.Level != "info" || line.Message != "first" {
		t.Errorf("%s, %v", lines[0], err)
	}
	at, err := time.Parse("2006-01-02T15:04:05.000Z", line.Time)
	if err != nil || at.Before(before) || time.Since(at) > time.Minute {
		t.Errorf("time %q, %v; want now, in UTC with milliseconds", line.Time, err)
	}
}

// What libraries write to the standard log is JSON too, and for debugging only.
func TestLog_Standard(t *testing.T) {
	for level, want := range map[zerolog.Level]int{zerolog.DebugLevel: 1, zerolog.InfoLevel: 0} {
		var out logtest.Log
		log := NewLog(&out, level)
		stdlog.New(log.Standard(), "", 0).Print("Unsolicited response")
		log.Close()
		if got := strings.Count(out.String(), `"level":"debug","error":"Unsolicited response"`); got != want {
			t.Errorf("at level %s: %s; want it %d times", level, out.String(), want)
		}
	}
}

// A sink that fails loses lines and stops nobody.
func TestLog_ASinkThatFails(t *testing.T) {
	log := NewLog(failing{}, zerolog.InfoLevel)
	log.Info().Msg("lost")
	log.Close()
	if got := log.queue.dropped.Load(); got != 1 {
		t.Errorf("%d lines dropped; want 1", got)
	}
}

type failing struct{}

func (failing) Write([]byte) (int, error) { return 0, io.ErrClosedPipe }

func TestRedisLog_IsForDebugging(t *testing.T) {
	var out logtest.Log
	redisLog{zerolog.New(&out)}.Printf(t.Context(), "pool %d: %v", 3, errors.New("away"))
	if want := fmt.Sprintln(`{"level":"debug","message":"redis: pool 3: away"}`); out.String() != want {
		t.Errorf("logged %s; want %s", out.String(), want)
	}
}

// A stamp has milliseconds, also where they end in zeros.
func TestLog_EachStampIsThatOfItsTime(t *testing.T) {
	var c clock
	from := time.Date(2026, 12, 31, 23, 59, 58, 0, time.FixedZone("", 3600))
	for _, after := range []time.Duration{0, 1, 999 * time.Microsecond, 10 * time.Millisecond, 999_999_999, 2 * time.Second, 12 * time.Hour, time.Millisecond} {
		at := from.Add(after)
		if got, want := string(c.append(nil, at)), at.UTC().Format(`"2006-01-02T15:04:05.000Z07:00"`); got != want {
			t.Errorf("%s; want %s", got, want)
		}
	}
}

func TestLogQueue_WritesAllInOrder(t *testing.T) {
	var out logtest.Log
	q := newLogQueue(&out)
	log := zerolog.New(q)
	const writers, lines = 4, 2000
	var all sync.WaitGroup
	for w := range writers {
		all.Go(func() {
			for i := range lines {
				log.Info().Int("n", i).Msg(fmt.Sprint("writer ", w))
			}
		})
	}
	all.Wait()
	q.Close()
	var next [writers]int
	for line := range strings.Lines(out.String()) {
		for w := range writers {
			if strings.Contains(line, fmt.Sprintf(`"message":"writer %d"`, w)) && line == fmt.Sprintf("{\"level\":\"info\",\"n\":%d,\"message\":\"writer %d\"}\n", next[w], w) {
				next[w]++
			}
		}
	}
	for w, n := range next {
		if n != lines {
			t.Errorf("%d lines of writer %d in order; want %d", n, w, lines)
		}
	}
	if q.dropped.Load() != 0 {
		t.Errorf("%d dropped; want none", q.dropped.Load())
	}
}

// A stuck sink takes nothing until it is let.
type stuck struct {
	let chan struct{}
	out logtest.Log
}

func (s *stuck) Write(b []byte) (int, error) {
	<-s.let
	return s.out.Write(b)
}

// A sink that takes nothing stops nobody: what there is no room for is dropped and
// counted, warnings last; closing waits a second and no longer.
func TestLogQueue_ASinkThatTakesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sink := &stuck{let: make(chan struct{})}
		q := newLogQueue(sink)
		r := prometheus.NewRegistry()
		watchDropped(r, q)
		log := zerolog.New(q)
		log.Info().Msg("first")
		synctest.Wait() // it is being written now
		pad := strings.Repeat("x", 1000)
		for range maxQueued / 1000 {
			log.Info().Str("pad", pad).Msg("request")
		}
		log.Warn().Msg("warning")
		if n := q.dropped.Load(); n < maxQueued/1000/5 || n > maxQueued/1000/3 {
			t.Errorf("%d lines dropped; want about a quarter of %d", n, maxQueued/1000)
		}
		if n, err := testutil.GatherAndCount(r, "weir_log_lines_dropped_total"); n != 1 || err != nil {
			t.Errorf("%d figures, %v; want one", n, err)
		}
		began := time.Now()
		q.Close()
		if took := time.Since(began); took != flushTimeout {
			t.Errorf("closing took %v; want %v", took, flushTimeout)
		}
		close(sink.let)
		<-q.ended
		text := sink.out.String()
		if !strings.HasPrefix(text, `{"level":"info","message":"first"}`) || !strings.HasSuffix(text, "{\"level\":\"warn\",\"message\":\"warning\"}\n") || len(text) > maxQueued {
			t.Errorf("%d bytes written, from %.50q on; want the first line to the warning", len(text), text)
		}
	})
}

// A broken sink fails always.
type broken struct{}

func (broken) Write([]byte) (int, error) { return 0, errors.New("no space left") }

func TestLogQueue_ASinkThatFails(t *testing.T) {
	q := newLogQueue(broken{})
	for range 3 {
		if n, err := q.Write([]byte("a line\n")); n != 7 || err != nil {
			t.Errorf("write = %d, %v; want that nobody hears of it", n, err)
		}
	}
	q.Close()
	if q.dropped.Load() != 3 {
		t.Errorf("%d dropped; want 3", q.dropped.Load())
	}
}

// A full disk takes a part of what is written. The line that was cut is lost; those before and after it are whole, and
// only lost ones are counted.
func TestLogQueue_AfterAFullDisk(t *testing.T) {
	disk := &fullDisk{room: len("one\ntw")}
	q := &logQueue{out: disk}
	q.write([]byte("one\ntwo\nthree\n"))
	q.write([]byte("four\n"))
	disk.room = 100
	q.write([]byte("five\n"))
	q.write([]byte("six\n"))
	if want := "one\ntw\nfive\nsix\n"; disk.text.String() != want || q.dropped.Load() != 3 {
		t.Errorf("written %q, %d lines dropped; want %q, and 3", disk.text.String(), q.dropped.Load(), want)
	}
}

// Whoever reads the log of the process learns that the access log cannot be written, once a minute.
func TestNode_TellsThatTheAccessLogFails(t *testing.T) {
	n := mustStart(t, writeConfig(t, fmt.Sprintf("access_log: {file: %q}\n", filepath.Join(t.TempDir(), "access.log"))))
	file := n.access.file
	file.mu.Lock()
	check(t, file.f.Close())
	file.f, _ = os.Open(file.path) // for reading
	file.mu.Unlock()
	for lost := range int64(3) {
		get(t, "http://"+n.Address("http")+"/a")
		await.Until(t, "its line is lost", func() bool { return n.access.Lines.(*logQueue).dropped.Load() == lost+1 })
	}
	const told = "access log cannot be written; its lines are lost until it can"
	if line := n.waitForLog(told); line["error"] == nil || strings.Count(n.log.String(), told) != 1 {
		t.Errorf("logged %s; want the error, once", n.log)
	}
}

// A pipe that nobody reads is no reason to wait for ever.
func TestNode_DoesNotWaitForAReaderOfItsAccessLog(t *testing.T) {
	path := filepath.Join(t.TempDir(), "fifo")
	check(t, syscall.Mkfifo(path, 0o600))
	if _, err := startNode(t, writeConfig(t, fmt.Sprintf("access_log: {file: %q}\n", path)), nil); !errors.Is(err, syscall.ENXIO) {
		t.Errorf("%v; want that it has no reader", err)
	}
}

// A fullDisk has room for so many bytes.
type fullDisk struct {
	text strings.Builder
	room int
}

func (d *fullDisk) Write(b []byte) (int, error) {
	n := min(len(b), d.room)
	d.room -= n
	d.text.Write(b[:n])
	if n < len(b) {
		return n, syscall.ENOSPC
	}
	return n, nil
}

// Lines are written together, and never cut.
func TestLogQueue_WritesWholeLines(t *testing.T) {
	sizes := &pieces{}
	q := &logQueue{out: sizes}
	line := strings.Repeat("x", 999) + "\n"
	q.write(bytes.Repeat([]byte(line), 1000))
	long := append(bytes.Repeat([]byte("y"), maxBatch+10), '\n')
	q.write(long)
	for i, piece := range sizes.all[:len(sizes.all)-2] {
		if len(piece) > maxBatch || !strings.HasSuffix(piece, "\n") {
			t.Errorf("piece %d has %d bytes and ends with %q", i, len(piece), piece[len(piece)-1:])
		}
	}
	if got := strings.Join(sizes.all, ""); got != strings.Repeat(line, 1000)+string(long) || len(sizes.all) > 1000*1000/maxBatch+4 {
		t.Errorf("%d bytes in %d pieces", len(got), len(sizes.all))
	}
}

type pieces struct{ all []string }

func (p *pieces) Write(b []byte) (int, error) {
	p.all = append(p.all, string(b))
	return len(b), nil
}

// After its end a queue writes at once, if the sink takes that.
func TestLogQueue_AfterTheEnd(t *testing.T) {
	var out logtest.Log
	q := newLogQueue(&out)
	q.Close()
	if _, err := q.Write([]byte("late\n")); err != nil || out.String() != "late\n" {
		t.Errorf("%v, %q; want the line that came late", err, out.String())
	}
}

// A node whose log nobody reads serves, and ends when it is told to.
func TestNode_ALogThatNobodyReads(t *testing.T) {
	r, w, err := os.Pipe()
	check(t, err)
	defer w.Close()
	defer r.Close() // before w: what is being written to it ends
	path := writeConfig(t, "")
	c, err := config.Load(path)
	check(t, err)
	log := NewLog(w, zerolog.InfoLevel)
	n, err := Start(t.Context(), Options{Path: path, Config: c, Load: func() (*config.Config, error) { return config.Load(path) }, Log: log})
	check(t, err)
	for range 600 { // more lines than a pipe holds
		answer, err := http.Get("http://" + n.Address("http") + "/a")
		check(t, err)
		io.Copy(io.Discard, answer.Body)
		answer.Body.Close()
		if answer.StatusCode != 200 {
			t.Fatalf("status %d; want 200", answer.StatusCode)
		}
	}
	ended := make(chan error, 1)
	go func() {
		defer log.Close()
		ended <- n.Close()
	}()
	await.Until(t, "the node ends", func() bool { return len(ended) == 1 })
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// What is written while a file is renamed and opened anew is in one of the two.
func TestLogFile_ReopenLosesNothing(t *testing.T) {
	path := filepath.Join(t.TempDir(), "access.log")
	file, err := openLogFile(path)
	check(t, err)
	queue := newLogQueue(file)
	const lines = 20_000
	var all sync.WaitGroup
	all.Go(func() {
		for i := range lines {
			fmt.Fprintf(queue, "%d\n", i)
		}
	})
	const times = 20
	for i := range times {
		check(t, os.Rename(path, fmt.Sprint(path, ".", i)))
		check(t, file.reopen())
	}
	all.Wait()
	queue.Close()
	check(t, file.Close())
	var text strings.Builder
	for i := range times {
		text.WriteString(contents(t, fmt.Sprint(path, ".", i)))
	}
	text.WriteString(contents(t, path))
	next := 0
	for line := range strings.Lines(text.String()) {
		if line != fmt.Sprintf("%d\n", next) {
			t.Fatalf("line %d is %q", next, line)
		}
		next++
	}
	if next != lines || queue.dropped.Load() != 0 {
		t.Errorf("%d lines of %d, %d dropped", next, lines, queue.dropped.Load())
	}
}

func contents(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	check(t, err)
	return string(text)
}

// A folder that is gone leaves the file as it was, and it is added to, not begun anew.
func TestLogFile_ReopenThatFailsChangesNothing(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "logs")
	check(t, os.Mkdir(dir, 0o700))
	path, moved := filepath.Join(dir, "access.log"), dir+"-moved"
	replaceFile(t, path, "before\n")
	file, err := openLogFile(path)
	check(t, err)
	defer file.Close()
	check(t, os.Rename(dir, moved))
	if err := file.reopen(); err == nil {
		t.Error("a file was opened in a folder that is gone")
	}
	if _, err := file.Write([]byte("after\n")); err != nil {
		t.Fatal(err)
	}
	if text := contents(t, filepath.Join(moved, "access.log")); text != "before\nafter\n" {
		t.Errorf("the file has %q", text)
	}
}
