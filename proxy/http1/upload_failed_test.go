package http1

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"testing"
	"testing/synctest"
	"time"
)

// uploading makes a call with a body over a connection that has been used before, on
// which the test plays the upstream. It has sent the head, and begun with the body.
func uploading(t *testing.T, body io.Reader, answer func(net.Conn)) *Call {
	t.Helper()
	client := &Client{ResponseTimeout: 10 * time.Second, BodyTimeout: 4 * time.Second}
	pool := client.NewPool(Endpoint{Dial: func(context.Context, string, string) (net.Conn, error) {
		ours, theirs := net.Pipe()
		go answer(theirs)
		return ours, nil
	}})
	t.Cleanup(pool.Close)
	c := client.NewCall(nil)
	t.Cleanup(c.Release)
	c.SetSource(Source{Reader: body, Length: 5, Stop: func() {}})
	c.Begin("POST", "a", "/")
	if err := c.encodeRequest(); err != nil {
		t.Fatal(err)
	}
	u, fault := pool.dial(c)
	if fault != nil {
		t.Fatal(fault)
	}
	u.reused = true
	u.setReadDeadline(client.ResponseTimeout)
	c.pool, c.conn, c.in.from, c.in.pool = pool, u, u.net, &client.buffers
	if _, err := u.net.Write(c.out.buf); err != nil {
		t.Fatal(err)
	}
	c.startUpload()
	return c
}

// A body that fails at once ends the wait for an answer that has not begun yet: the
// upstream waits for the rest of the body, and would wait for ever.
func TestUpload_FailsBeforeResponseIsAwaited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		body, client := io.Pipe()
		client.CloseWithError(errors.New("no body"))
		c := uploading(t, body, func(upstream net.Conn) { _, _ = io.Copy(io.Discard, upstream) })
		synctest.Wait() // the upload has failed
		began := time.Now()
		if fault := c.awaitResponse(); fault == nil || fault.Phase != ReadingRequestBody || time.Since(began) > 0 {
			t.Errorf("%v after %v; want the fault of the body at once", fault, time.Since(began))
		}
	})
}

// The same for an answer that has begun: there will be no more of it.
func TestUpload_FailsWhileResponseIsRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		body, client := io.Pipe()
		c := uploading(t, body, func(upstream net.Conn) {
			_, _ = http.ReadRequest(bufio.NewReader(upstream))
			_, _ = io.WriteString(upstream, lined("HTTP/1.1 200 OK|Content-Length: 4||"))
			_, _ = io.Copy(io.Discard, upstream)
		})
		if fault := c.awaitResponse(); fault != nil {
			t.Fatal(fault)
		}
		client.CloseWithError(errors.New("no body"))
		synctest.Wait() // the upload has failed
		began := time.Now()
		_, err := c.Body().Next()
		if fault := c.responseBodyError(err); fault.Phase != ReadingRequestBody || time.Since(began) > 0 {
			t.Errorf("%v after %v; want the fault of the body at once", fault, time.Since(began))
		}
	})
}
