package node

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"sync"
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
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	defer r.Close() // before w: what is being written to it ends
	path := writeConfig(t, "")
	c, err := config.Load(path)
	if err != nil {
		t.Fatal(err)
	}
	log := NewLog(w, zerolog.InfoLevel)
	n, err := Start(t.Context(), Options{Path: path, Config: c, Log: log})
	if err != nil {
		t.Fatal(err)
	}
	for range 600 { // more lines than a pipe holds
		answer, err := http.Get("http://" + n.Address("http") + "/a")
		if err != nil {
			t.Fatal(err)
		}
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
