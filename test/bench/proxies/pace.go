package main

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strconv"
	"sync"
	"time"
)

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
