package test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
)

// A logBuffer keeps what a process writes to stderr.
type logBuffer struct {
	mu   sync.Mutex // guards what follows
	said bytes.Buffer
}

func (j *logBuffer) Write(b []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.said.Write(b)
}

func (j *logBuffer) String() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.said.String()
}

// lines are the complete lines so far that are JSON objects.
func (j *logBuffer) lines() []line {
	var out []line
	all := strings.SplitAfter(j.String(), "\n")
	for _, text := range all {
		var l line
		if strings.HasSuffix(text, "\n") && json.Unmarshal([]byte(text), &l) == nil {
			out = append(out, l)
		}
	}
	return out
}

// count says how many lines have that message.
func (j *logBuffer) count(message string) int {
	n := 0
	for _, l := range j.lines() {
		if l.text("message") == message {
			n++
		}
	}
	return n
}

// A line is one JSON object of the log.
type line map[string]any

// text is a field in words; a missing one is empty.
func (l line) text(field string) string {
	if v, ok := l[field]; ok {
		return fmt.Sprint(v)
	}
	return ""
}

// last returns the last n lines of s.
func last(s string, n int) string {
	lines := strings.SplitAfter(s, "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "")
}
