//go:build readers

package readers

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// An answer is what came back: the status and, from a reader, what it read.
type answer struct {
	status int
	acted  bool   // a reader's own program has answered
	route  string // the one that the reader took
	read   map[string][]string
}

// answerTimeout is how long an answer may take; without one the request counts as refused.
const answerTimeout = 20 * time.Second

// send sends a request on a connection of its own.
func send(addr string, m *message) (answer, error) {
	c, err := net.DialTimeout("tcp", addr, answerTimeout)
	if err != nil {
		return answer{}, err
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(answerTimeout))
	if m.http2 {
		return send2(c, m)
	}
	if _, err := c.Write(m.bytes()); err != nil {
		return answer{}, fmt.Errorf("write: %w", err)
	}
	r, err := http.ReadResponse(bufio.NewReader(c), &http.Request{Method: m.method})
	if err != nil {
		return answer{}, fmt.Errorf("read: %w", err)
	}
	return told(r.StatusCode, r.Header.Get("X-Read"))
}

// told reads what a reader says.
func told(status int, text string) (answer, error) {
	a := answer{status: status}
	if status != http.StatusOK || text == "" {
		return a, nil
	}
	raw, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		return a, err
	}
	all := map[string]json.RawMessage{}
	if err := json.Unmarshal(raw, &all); err != nil {
		return a, fmt.Errorf("%q: %w", raw, err)
	}
	a.acted, a.read = true, map[string][]string{}
	for name, value := range all {
		if name == "route" {
			err = errors.Join(err, json.Unmarshal(value, &a.route))
			continue
		}
		var texts []string
		err = errors.Join(err, json.Unmarshal(value, &texts))
		a.read[name] = texts
	}
	return a, err
}

// dropped are the fields that HTTP/2 has no place for.
func dropped() []string {
	return []string{"host", "connection", "transfer-encoding", "keep-alive", "upgrade"}
}

// send2 sends the request with HTTP/2 frames and takes what comes on its stream.
func send2(c net.Conn, m *message) (answer, error) {
	var head bytes.Buffer
	encoder := hpack.NewEncoder(&head)
	write := func(name, value string) {
		encoder.WriteField(hpack.HeaderField{Name: name, Value: value})
	}
	write(":method", m.method)
	write(":scheme", "http")
	write(":path", m.target)
	write(":authority", m.host)
	for _, f := range m.fields {
		if name := strings.ToLower(f.name); !slices.Contains(dropped(), name) {
			write(name, f.value)
		}
	}
	if _, err := io.WriteString(c, http2.ClientPreface); err != nil {
		return answer{}, err
	}
	framer := http2.NewFramer(c, c)
	framer.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	framer.WriteSettings()
	trailers := len(m.trailers) > 0
	framer.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: head.Bytes(), EndHeaders: true,
		EndStream: len(m.body) == 0 && !trailers})
	if len(m.body) > 0 {
		framer.WriteData(1, !trailers, m.body)
	}
	if trailers {
		head.Reset()
		for _, f := range m.trailers {
			write(strings.ToLower(f.name), f.value)
		}
		framer.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: head.Bytes(), EndHeaders: true, EndStream: true})
	}
	return take2(framer)
}

// take2 is what stream 1 is answered with.
func take2(framer *http2.Framer) (answer, error) {
	for {
		frame, err := framer.ReadFrame()
		if err != nil {
			return answer{}, fmt.Errorf("read frame: %w", err)
		}
		switch f := frame.(type) {
		case *http2.SettingsFrame:
			if !f.IsAck() {
				framer.WriteSettingsAck()
			}
		case *http2.RSTStreamFrame:
			return answer{status: http.StatusBadRequest}, nil
		case *http2.GoAwayFrame:
			if f.ErrCode != http2.ErrCodeNo {
				return answer{status: http.StatusBadRequest}, nil
			}
		case *http2.MetaHeadersFrame:
			status, text := 0, ""
			fmt.Sscan(f.PseudoValue("status"), &status)
			for _, h := range f.RegularFields() {
				if h.Name == "x-read" {
					text = h.Value
				}
			}
			if status >= 200 {
				return told(status, text)
			}
		}
	}
}
