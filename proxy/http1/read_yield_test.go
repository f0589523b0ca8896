package http1

import (
	"testing"

	"github.com/weir-proxy/weir/test/await"
)

// yieldsOf returns how many of n responses a readYield yields after, if each yield ends
// like this.
func yieldsOf(n int, end func(y *readYield)) (yields int) {
	var y readYield
	for range n {
		if y.due() {
			yields++
			end(&y)
		}
	}
	return yields
}

func TestReadYield_YieldsWhereItGains(t *testing.T) {
	for _, c := range []struct {
		name        string
		end         func(y *readYield)
		least, most int // of 6,400 responses
	}{
		{"a request is there, and the one before waited for an upstream", (*readYield).found, 6400, 6400},
		{"a request is there, and nothing waits", func(y *readYield) { y.found(); y.skipNext() }, 3200, 3200},
		{"no request is there", (*readYield).foundNothing, 100, 106},
		{"no request is there, and nothing waits", func(y *readYield) { y.foundNothing(); y.skipNext() }, 100, 106},
	} {
		if got := yieldsOf(6400, c.end); got < c.least || got > c.most {
			t.Errorf("%s: %d yields, want %d to %d", c.name, got, c.least, c.most)
		}
	}
}

// When requests come quickly again, the first yield that finds one ends the pause.
func TestReadYield_BeginsAgain(t *testing.T) {
	var y readYield
	for range 1000 {
		if y.due() {
			y.foundNothing()
		}
	}
	for !y.due() {
	}
	y.found()
	for range 10 {
		if !y.due() {
			t.Fatal("no yield after one that has found a request")
		}
		y.found()
	}
}

// A connection yields after a response, and knows whether an upstream was waited for.
func TestReadYield_OfAConnection(t *testing.T) {
	upstream := serving(t, says, nil)
	client := &Client{}
	pool := client.NewPool(Endpoint{Network: "tcp", Address: upstream.addr})
	defer pool.Close()
	type request struct {
		yield          readYield
		waited, before bool
	}
	requests := make(chan request, 1)
	p := serving(t, func(x *Exchange) {
		before := x.waited
		if x.Path() == "/forward" {
			c := client.NewCall(x)
			c.Begin("GET", "a", "/")
			if err := pool.Send(c); err != nil {
				t.Error(err)
			}
			c.Release()
		}
		requests <- request{x.conn.yield, x.waited, before}
		says(x)
	}, func(s *Server) {
		s.yields = true
	})
	for path, waits := range map[string]bool{"/": false, "/forward": true} {
		w := p.dial(t, "")
		for i := range 2 {
			w.Send(lined("GET " + path + " HTTP/1.1|Host: a||"))
			w.WantStatus(200)
			r := await.Value(t, requests, "request")
			if r.before || r.waited != waits {
				t.Errorf("%s, request %d: waited is %v, then %v", path, i, r.before, r.waited)
			}
			if yielded := r.yield != (readYield{}); !waits && yielded != (i > 0) {
				t.Errorf("%s, request %d: %+v", path, i, r.yield)
			}
		}
	}
}
