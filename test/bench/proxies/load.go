package main

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// measure runs one contestant under one workload.
func (b *bench) measure(ctx context.Context, c contestant, w workload) (result, error) {
	p, err := b.start(contestants, b.port, c.args...)
	if err != nil {
		return result{}, err
	}
	defer p.stop()
	var asked *process
	if c.asked != nil {
		if asked, err = b.start(contestants, b.decidePort, c.asked...); err != nil {
			return result{}, err
		}
		defer asked.stop()
	}
	silent, err := b.keepIdle(w.idle)
	defer closeAll(silent)
	if err != nil {
		return result{}, err
	}
	if _, err := b.put(ctx, w, max(b.measured/3, time.Second)); err != nil {
		return result{}, err
	}
	proxy, decisions, redis := p.cpu(), asked.cpu(), b.redis.cpu()
	r, err := b.put(ctx, w, b.measured)
	if err == nil && r.requests == 0 {
		err = errors.New("no request was answered")
	}
	if err != nil {
		return result{}, err
	}
	n := r.requests * b.measured.Seconds()
	r.asked = (asked.cpu() - decisions).Seconds() * 1e6 / n
	r.cpu = (p.cpu()-proxy).Seconds()*1e6/n + r.asked
	r.redis = (b.redis.cpu() - redis).Seconds() * 1e6 / n
	return r, nil
}

// said finds the numbers of whatever put the load.
var said = regexp.MustCompile(`RESULT (\d+) ([\d.]+) (\d+) (\d+) (\d+)`)

// put puts load on the contestant and reads what came of it.
func (b *bench) put(ctx context.Context, w workload, d time.Duration) (result, error) {
	connections := b.connections
	if w.http2 || w.answer == long || w.upload == long {
		connections = min(connections, 8)
	}
	args := append(b.pinned(others), b.generator(w, connections, d)...)
	out, err := exec.CommandContext(ctx, args[0], args[1:]...).CombinedOutput()
	m := said.FindStringSubmatch(string(out))
	if err != nil || m == nil {
		return result{}, fmt.Errorf("%s: %w: %s", strings.Join(args, " "), errors.Join(err, context.Cause(ctx)), out)
	}
	number := func(i int) float64 { n, _ := strconv.ParseFloat(m[i], 64); return n }
	total, failed := number(1), int(number(5))
	r := result{requests: total / number(2), p50: number(3) / 1000, p99: number(4) / 1000, odd: failed}
	if w.refuses {
		r.odd = max(0, int(total*0.95)-failed)
	}
	return r, nil
}

// generator is the program that puts the load of w, and its arguments.
func (b *bench) generator(w workload, connections int, d time.Duration) []string {
	url := fmt.Sprintf("%s://%s%s", w.scheme(), local(b.port), w.path())
	switch {
	case w.http2:
		return []string{b.self, "http2", b.h2loadPath, url, strconv.Itoa(connections), d.String()}
	case w.rate > 0:
		return []string{b.self, "pace", url, strconv.Itoa(w.rate), strconv.Itoa(connections), d.String(), strconv.Itoa(w.keys)}
	}
	threads := min(b.of(others), connections)
	return []string{b.wrkPath, "-t", strconv.Itoa(threads), "-c", strconv.Itoa(connections), "-d", fmt.Sprintf("%.0fs", d.Seconds()),
		"--timeout", "10s", "-s", filepath.Join(b.dir, "load.lua"), url, "--", strconv.Itoa(w.keys), strconv.Itoa(w.upload)}
}

// path is what is asked for.
func (w *workload) path() string {
	switch {
	case w.routes > 0:
		return fmt.Sprintf("/r%d/", w.routes-1)
	case w.answer != short:
		return fmt.Sprintf("/%d", w.answer)
	}
	return "/"
}

// load is the script of wrk: keys in rotation, and a line of figures at the end.
const load = `local requests, i = {}, 0
function init(args)
  local body, method, size = nil, "GET", tonumber(args[2])
  if size > 0 then body, method = string.rep("x", size), "POST" end
  for k = 1, tonumber(args[1]) do requests[k] = wrk.format(method, nil, { ["X-Api-Key"] = "key-" .. k }, body) end
end
function request()
  i = i % #requests + 1
  return requests[i]
end
function done(summary, latency)
  local e = summary.errors
  if e.connect + e.read + e.write + e.timeout > 0 then error("sockets failed") end
  io.write(string.format("RESULT %d %.3f %d %d %d\n", summary.requests, summary.duration / 1e6,
    latency:percentile(50), latency:percentile(99), e.status))
end
`

// keepIdle makes connections that have had one answer and stay open.
func (b *bench) keepIdle(n int) (all []net.Conn, err error) {
	for range n {
		c, err := net.Dial("tcp", local(b.port))
		if err != nil {
			return all, fmt.Errorf("keep idle: %w", err)
		}
		all = append(all, c)
		if _, err := io.WriteString(c, "GET / HTTP/1.1\r\nHost: bench\r\n\r\n"); err != nil {
			return all, fmt.Errorf("keep idle: %w", err)
		}
		answer, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil {
			return all, fmt.Errorf("keep idle: %w", err)
		}
		if _, err := io.Copy(io.Discard, answer.Body); err != nil {
			return all, fmt.Errorf("keep idle: %w", err)
		}
	}
	return all, nil
}

func closeAll(all []net.Conn) {
	for _, c := range all {
		_ = c.Close()
	}
}

// A pacer sends requests at the pace of a clock, whether or not answers come. How long
// an answer took counts from when its request was due, not from when a connection was
// free for it: a proxy that stands still for a while makes all those late that were due
// meanwhile, as it would for clients who do not know of each other.
type pacer struct {
	host        string
	target      string
	rate, keys  int
	connections int
	lasts       time.Duration

	due chan job

	mu     sync.Mutex // guards what follows
	took   []time.Duration
	failed int
	err    error
}

// A job is a request.
type job struct {
	at  time.Time
	key int
}

// pace is the program that puts load at a fixed rate: it prints what wrk's script does.
func pace(args []string) error {
	if len(args) != 5 {
		return errors.New("write: pace URL RATE CONNECTIONS DURATION KEYS")
	}
	u, err := url.Parse(args[0])
	if err != nil {
		return err
	}
	p := &pacer{host: u.Host, target: cmp.Or(u.RequestURI(), "/")}
	var errs [4]error
	p.rate, errs[0] = strconv.Atoi(args[1])
	p.connections, errs[1] = strconv.Atoi(args[2])
	p.lasts, errs[2] = time.ParseDuration(args[3])
	p.keys, errs[3] = strconv.Atoi(args[4])
	if err := errors.Join(errs[:]...); err != nil {
		return err
	}
	if p.rate < 1 || p.connections < 1 || p.keys < 1 {
		return errors.New("rate, connections and keys must be at least 1")
	}
	began := time.Now()
	p.run(began)
	if p.err != nil {
		return p.err
	}
	slices.Sort(p.took)
	fmt.Fprintf(os.Stdout, "RESULT %d %.3f %d %d %d\n", len(p.took), time.Since(began).Seconds(),
		p.percentile(50).Microseconds(), p.percentile(99).Microseconds(), p.failed)
	return nil
}

func (p *pacer) run(began time.Time) {
	n := int(p.lasts.Seconds() * float64(p.rate))
	p.due = make(chan job, n) // whoever is late does not hold up the clock
	var workers sync.WaitGroup
	for range p.connections {
		workers.Go(func() {
			if err := p.work(); err != nil {
				p.mu.Lock()
				p.err = cmp.Or(p.err, err)
				p.mu.Unlock()
			}
		})
	}
	for i := range n {
		at := began.Add(time.Duration(i) * time.Second / time.Duration(p.rate))
		for wait := time.Until(at); wait > 0; wait = time.Until(at) {
			sleep(wait)
		}
		p.due <- job{at, i % p.keys}
	}
	close(p.due)
	workers.Wait()
}

// work answers for one connection.
func (p *pacer) work() error {
	c, err := net.Dial("tcp", p.host)
	if err != nil {
		return err
	}
	defer c.Close()
	in := bufio.NewReaderSize(c, 64<<10)
	var out []byte
	for j := range p.due {
		out = fmt.Appendf(out[:0], "GET %s HTTP/1.1\r\nHost: %s\r\nX-Api-Key: key-%d\r\n\r\n", p.target, p.host, j.key)
		if _, err := c.Write(out); err != nil {
			return err
		}
		answer, err := http.ReadResponse(in, nil)
		if err != nil {
			return err
		}
		if _, err := io.Copy(io.Discard, answer.Body); err != nil {
			return err
		}
		p.note(time.Since(j.at), answer.StatusCode)
	}
	return nil
}

func (p *pacer) note(took time.Duration, status int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.took = append(p.took, took)
	if status >= 400 {
		p.failed++
	}
}

// percentile is how long so many of a hundred took at most. p.took is sorted.
func (p *pacer) percentile(of int) time.Duration {
	if len(p.took) == 0 {
		return 0
	}
	return p.took[(len(p.took)-1)*of/100]
}

// sink is the program that reads requests to their end and answers with 1 KiB.
func sink(args []string) error {
	if len(args) != 1 {
		return errors.New("write: sink ADDRESS")
	}
	answer := make([]byte, short)
	return http.ListenAndServe(args[0], http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, err := io.Copy(io.Discard, r.Body); err != nil {
			return
		}
		w.Header().Set("Content-Length", strconv.Itoa(len(answer)))
		_, _ = w.Write(answer) // the client may have left
	}))
}

// inFlight are requests at once on a connection of HTTP/2.
const inFlight = 8

// overHTTP2 finds the protocol: negotiated by TLS, or known before.
var overHTTP2 = regexp.MustCompile(`Application protocol: h2c?\n`)

// finished is how long h2load has measured, in seconds.
var finished = regexp.MustCompile(`finished in ([\d.]+)s`)

// http2 has h2load put the load and prints the line of figures that wrk's script prints:
//
//	http2 H2LOAD URL CONNECTIONS DURATION
func http2(args []string) error {
	if len(args) != 4 {
		return errors.New("write: http2 H2LOAD URL CONNECTIONS DURATION")
	}
	lasts, err := time.ParseDuration(args[3])
	if err != nil {
		return err
	}
	log, err := os.CreateTemp("", "h2load-")
	if err != nil {
		return err
	}
	defer os.Remove(log.Name())
	defer log.Close()
	out, err := exec.Command(args[0], "-t", "1", "-c", args[2], "-m", strconv.Itoa(inFlight), "-D", fmt.Sprintf("%dms", lasts.Milliseconds()),
		"-H", "X-Api-Key: key-1", "--log-file", log.Name(), args[1]).CombinedOutput()
	if err != nil {
		return fmt.Errorf("h2load: %w: %s", err, out)
	}
	m := finished.FindStringSubmatch(string(out))
	if m == nil || !overHTTP2.Match(out) {
		return fmt.Errorf("h2load has not measured HTTP/2: %s", out)
	}
	text, err := os.ReadFile(log.Name())
	if err != nil {
		return err
	}
	var took []int // µs
	failed := 0
	for line := range strings.Lines(string(text)) {
		f := strings.Fields(line) // when, the status, how long
		if len(f) != 3 {
			continue
		}
		if f[1] >= "400" || f[1] == "-1" {
			failed++
		}
		n, err := strconv.Atoi(f[2])
		if err != nil {
			return fmt.Errorf("read h2load's log: %w", err)
		}
		took = append(took, n)
	}
	if len(took) == 0 {
		return fmt.Errorf("h2load was answered nothing: %s", out)
	}
	slices.Sort(took)
	fmt.Printf("RESULT %d %s %d %d %d\n", len(took), m[1], took[len(took)/2], took[(len(took)-1)*99/100], failed)
	return nil
}
