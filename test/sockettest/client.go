// Package sockettest speaks HTTP/1.1 by hand: a test says bytes on a connection and
// looks at what comes back, over plain TCP or over TLS.
package sockettest

import (
	"bufio"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"testing"
	"time"

	"github.com/weir-proxy/weir/test/await"
)

// A Client is a client's connection. It ends with the test, which fails if anything
// lasts longer than await.Limit.
type Client struct {
	testing.TB
	net.Conn
	*bufio.Reader
}

// Read reads what was read into the buffer first.
func (c *Client) Read(p []byte) (int, error) { return c.Reader.Read(p) }

// Dial connects to addr, over TLS in a Secured test, and says these bytes.
func Dial(tb testing.TB, addr, said string) *Client {
	tb.Helper()
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(await.Limit))
	c := NewClient(tb, ClientSide(tb, conn))
	c.Send(said)
	return c
}

// NewClient is a client that speaks on conn.
func NewClient(tb testing.TB, conn net.Conn) *Client { return &Client{tb, conn, bufio.NewReader(conn)} }

// Send sends text as it is.
func (c *Client) Send(text string) {
	c.Helper()
	if _, err := io.WriteString(c.Conn, text); err != nil {
		c.Fatal(err)
	}
}

// ReadResponse reads one answer to a request with that method, and its body.
func (c *Client) ReadResponse(method string) (*http.Response, string) {
	c.Helper()
	answer, err := http.ReadResponse(c.Reader, &http.Request{Method: method})
	if err != nil {
		c.Fatalf("read answer: %v", err)
	}
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		c.Fatalf("read body of answer: %v after %q", err, body)
	}
	return answer, string(body)
}

// WantStatus reads one answer to GET, and checks its status.
func (c *Client) WantStatus(want int) (*http.Response, string) {
	c.Helper()
	answer, body := c.ReadResponse("GET")
	if answer.StatusCode != want {
		c.Fatalf("status %d; want %d\n%v\n%s", answer.StatusCode, want, answer.Header, body)
	}
	return answer, body
}

// WantClosed checks that the connection ends without another byte.
func (c *Client) WantClosed() {
	c.Helper()
	rest, err := io.ReadAll(c.Reader)
	if len(rest) > 0 || errors.Is(err, os.ErrDeadlineExceeded) {
		c.Fatalf("the connection goes on: %q, %v; want its end", rest, err)
	}
}
