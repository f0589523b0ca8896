package upstream

import (
	"net/http"
	"strings"
	"testing"

	"github.com/weir-proxy/weir/proxy/http1"
)

// A stopCounter is a body of a client that counts how often it is stopped.
type stopCounter struct {
	*strings.Reader
	stops int
}

func (s *stopCounter) Stop()                  { s.stops++ }
func (s *stopCounter) Trailer() *http1.Fields { return new(http1.Fields) }

// net/http closes the body of a request on a goroutine of its own, which may come after
// the request has ended. The client's body then belongs to another request.
func TestRequestBody_IsNotUsedAfterClose(t *testing.T) {
	client := &stopCounter{Reader: strings.NewReader("body")}
	b := newRequestBody(&forwarding{request: &Request{Fields: new(http1.Fields), Body: client}})
	b.close()
	before := client.stops
	if err := b.Close(); err != nil {
		t.Error(err)
	}
	if n, err := b.Read(make([]byte, 8)); n != 0 || err != http.ErrBodyReadAfterClose {
		t.Errorf("read %d bytes after close, %v", n, err)
	}
	if before != 1 || client.stops != before || client.Len() != 4 {
		t.Errorf("stopped %d times before close returned and %d times in all, %d bytes left; want 1, 1 and 4", before, client.stops, client.Len())
	}
}
