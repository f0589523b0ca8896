package upstream

import (
	"bufio"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// What a target sends with an answer, beyond its end, is not the answer to anybody
// else, however soon they ask.
func TestTurn_WhatIsLeftOverIsNoAnswer(t *testing.T) {
	const hints = "HTTP/1.1 103 Early Hints\r\nLink: </evil>\r\n\r\n"
	poison := func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		c, rw, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer c.Close()
		for err == nil {
			_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"+hints+"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil")
			if r, err = http.ReadRequest(rw.Reader); err == nil {
				_, _ = io.Copy(io.Discard, r.Body)
			}
		}
	}
	secure := newTLS(t, poison)
	roots := x509.NewCertPool()
	roots.AddCert(secure.Certificate())
	for name, pool := range map[string]*Pool{
		"http":  poolOf(t, backend(t, poison)),
		"https": mustPool(t, Config{Targets: []Target{{URL: mustURL(t, secure.URL)}}, TLS: &tls.Config{RootCAs: roots}}),
	} {
		t.Run(name, func(t *testing.T) {
			ask := func(method, body string) (Result, string) {
				r, w := request(t, "http://a/"), httptest.NewRecorder()
				r.Method = method
				if body != "" {
					r.Body, r.ContentLength = io.NopCloser(strings.NewReader(body)), int64(len(body))
				}
				return pool.Forward(w, r, tripOf(r)), w.Body.String()
			}
			var all sync.WaitGroup
			for range 8 {
				all.Go(func() {
					for range 40 {
						if res, body := ask("GET", ""); res.Kind != OK || body != "ok" {
							t.Errorf("GET is answered %v %q, want ok: %v", res.Kind, body, res.Err)
						}
						if res, body := ask("POST", "body"); res.Kind == OK && body != "ok" || res.Kind != OK && body != "" {
							t.Errorf("POST is answered %v %q, want ok or nothing: %v", res.Kind, body, res.Err)
						}
					}
				})
			}
			all.Wait()
		})
	}
}

// turned is a connection that was used, and is to be used again; sent is what the
// other end gets of that.
func turned(t *testing.T) (c *conn, sent chan string) {
	t.Helper()
	near, far := net.Pipe()
	c = newConn(near, time.Minute)
	c.turn()
	sent = make(chan string, 1)
	go func() {
		line, _ := bufio.NewReader(far).ReadString('\n')
		sent <- line
	}()
	t.Cleanup(func() { c.Close(); far.Close() })
	return c, sent
}

func TestConn_SendsWhenNothingIsLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, sent := turned(t)
		go func() { _, _ = io.WriteString(c, "request\n") }()
		synctest.Wait()
		if len(sent) > 0 || !c.unasked() {
			t.Error("it is sent while nobody waits for an answer to it")
		}
		go func() { _, _ = c.Read(make([]byte, 1)) }()
		if got := <-sent; got != "request\n" || c.unasked() {
			t.Errorf("%q is sent, want it when somebody waits for the answer", got)
		}
	})
}

func TestConn_DoesNotWaitForever(t *testing.T) {
	for name, c := range map[string]struct {
		end   func(*conn)
		after time.Duration
	}{
		"left over": {func(*conn) {}, turnWithin},
		"closed":    {func(c *conn) { c.Close() }, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				used, _ := turned(t)
				began, failed := time.Now(), make(chan error)
				go func() {
					_, err := io.WriteString(used, "request\n")
					failed <- err
				}()
				synctest.Wait()
				c.end(used)
				if err := <-failed; !errors.Is(err, net.ErrClosed) || time.Since(began) != c.after || !used.unasked() {
					t.Errorf("%v after %v, want that it is closed after %v", err, time.Since(began), c.after)
				}
			})
		})
	}
}
