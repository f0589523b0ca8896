//go:build parsers

// Package parsers compares what Weir's HTTP/1.1 reads of generated messages with what
// llhttp and hyper read of the same bytes. Its script is run.
package parsers

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
	"time"
)

// A run is what the tests share: the other parsers, and how much they are asked.
type run struct {
	others []*parser
	count  int
	seed   uint64
}

// begin starts the parsers and says how to see the same again.
func begin(t *testing.T) *run {
	t.Helper()
	r := &run{count: number(t, "WEIR_PARSERS_COUNT", 20_000), seed: uint64(number(t, "WEIR_PARSERS_SEED", int(time.Now().UnixNano()&0xffffff)))}
	cache := os.Getenv("WEIR_PARSERS")
	if cache == "" {
		t.Fatal("WEIR_PARSERS is not set: use test/interop/parsers/run")
	}
	r.others = []*parser{
		start(t, "llhttp", "node", cache+"/llhttp/parser.mjs"),
		start(t, "hyper", cache+"/hyper/release/parser"),
	}
	fmt.Printf("%s: WEIR_PARSERS_SEED=%d, %d messages\n", t.Name(), r.seed, r.count)
	return r
}

func (r *run) random() *rand.Rand { return rand.New(rand.NewPCG(r.seed, 1)) }

func number(t *testing.T, name string, otherwise int) int {
	t.Helper()
	said := os.Getenv(name)
	if said == "" {
		return otherwise
	}
	n, err := strconv.Atoi(said)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return n
}

// Every request that Weir accepts is the same request for the others, and none that
// all of them refuse is one for Weir.
func TestRequests(t *testing.T) {
	r := begin(t)
	random := r.random()
	tally := newTally(t, r.others)
	for range r.count {
		raw := varied(random, requests())
		tally.compare(raw, served(raw), r.ask(t, 'Q', raw))
	}
	tally.report()
}

// Every answer that Weir accepts is the same answer for the others.
func TestAnswers(t *testing.T) {
	r := begin(t)
	random := r.random()
	tally := newTally(t, r.others)
	for range r.count {
		raw, kind, method := varied(random, answers()), byte('G'), "GET"
		if random.IntN(5) == 0 {
			kind, method = 'H', "HEAD"
		}
		ours := called(raw, method)
		theirs := r.ask(t, kind, raw)
		for i := range theirs {
			theirs[i] = theirs[i].final()
		}
		tally.compare(raw, ours, theirs)
	}
	tally.report()
}

func (r *run) ask(t *testing.T, kind byte, raw []byte) []reading {
	t.Helper()
	var all []reading
	for _, p := range r.others {
		all = append(all, p.read(t, kind, raw))
	}
	return all
}
