package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

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
