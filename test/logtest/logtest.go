// Package logtest keeps what a server or a command logs while a test looks at it.
package logtest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
)

// A Log is a log so far. It may be written and read at any time; the zero Log is empty.
type Log struct {
	mu   sync.Mutex // guards what follows
	said bytes.Buffer
}

// Write implements io.Writer.
func (l *Log) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.said.Write(b)
}

// String is all that was written.
func (l *Log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.said.String()
}

// Tail is the last n lines.
func (l *Log) Tail(n int) string {
	lines := strings.SplitAfter(l.String(), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "")
}

// Lines are the complete lines that are JSON objects.
func (l *Log) Lines() (all []Line) {
	for text := range strings.Lines(l.String()) {
		var line Line
		if strings.HasSuffix(text, "\n") && json.Unmarshal([]byte(text), &line) == nil {
			all = append(all, line)
		}
	}
	return all
}

// Find is the first line with that message; nil if there is none.
func (l *Log) Find(message string) Line {
	for _, line := range l.Lines() {
		if line.Text("message") == message {
			return line
		}
	}
	return nil
}

// Count says how many lines have that message.
func (l *Log) Count(message string) (n int) {
	for _, line := range l.Lines() {
		if line.Text("message") == message {
			n++
		}
	}
	return n
}

// A Line is one JSON object of a log.
type Line map[string]any

// Text is a field in words; a missing one is empty.
func (l Line) Text(field string) string {
	if v, ok := l[field]; ok {
		return fmt.Sprint(v)
	}
	return ""
}
