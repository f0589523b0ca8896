package node

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	stdlog "log"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/weir-proxy/weir/test/logtest"
)

func TestLog_LinesAreJSONWithTheTime(t *testing.T) {
	var out logtest.Log
	log := NewLog(&out, zerolog.InfoLevel)
	before := time.Now().UTC().Truncate(time.Millisecond)
	log.Info().Int("n", 1).Msg("first")
	log.Debug().Msg("below the level")
	log.Warn().Msg("second")
	log.Close()
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	if len(lines) != 2 {
		t.Fatalf("%d lines; want 2:\n%s", len(lines), out.String())
	}
	var line struct{ Level, Message, Time string }
	if err := json.Unmarshal([]byte(lines[0]), &line); err != nil || line.Level != "info" || line.Message != "first" {
		t.Errorf("%s, %v", lines[0], err)
	}
	at, err := time.Parse("2006-01-02T15:04:05.000Z", line.Time)
	if err != nil || at.Before(before) || time.Since(at) > time.Minute {
		t.Errorf("time %q, %v; want now, in UTC with milliseconds", line.Time, err)
	}
}

// What libraries write to the standard log is JSON too, and for debugging only.
func TestLog_Standard(t *testing.T) {
	for level, want := range map[zerolog.Level]int{zerolog.DebugLevel: 1, zerolog.InfoLevel: 0} {
		var out logtest.Log
		log := NewLog(&out, level)
		stdlog.New(log.Standard(), "", 0).Print("Unsolicited response")
		log.Close()
		if got := strings.Count(out.String(), `"level":"debug","error":"Unsolicited response"`); got != want {
			t.Errorf("at level %s: %s; want it %d times", level, out.String(), want)
		}
	}
}

// A sink that fails loses lines and stops nobody.
func TestLog_ASinkThatFails(t *testing.T) {
	log := NewLog(failing{}, zerolog.InfoLevel)
	log.Info().Msg("lost")
	log.Close()
	if got := log.queue.dropped.Load(); got != 1 {
		t.Errorf("%d lines dropped; want 1", got)
	}
}

type failing struct{}

func (failing) Write([]byte) (int, error) { return 0, io.ErrClosedPipe }

func TestRedisLog_IsForDebugging(t *testing.T) {
	var out logtest.Log
	redisLog{zerolog.New(&out)}.Printf(t.Context(), "pool %d: %v", 3, errors.New("away"))
	if want := fmt.Sprintln(`{"level":"debug","message":"redis: pool 3: away"}`); out.String() != want {
		t.Errorf("logged %s; want %s", out.String(), want)
	}
}

// What a clock has kept of the second before is not used for another.
func TestLog_EachStampIsThatOfItsTime(t *testing.T) {
	c := newClock()
	from := time.Date(2026, 12, 31, 23, 59, 58, 0, time.FixedZone("", 3600))
	for _, after := range []time.Duration{0, 1, 999 * time.Microsecond, 10 * time.Millisecond, 999_999_999, 2 * time.Second, 12 * time.Hour, time.Millisecond} {
		at := from.Add(after)
		if got, want := string(c.append(nil, at)), at.UTC().Format(`"2006-01-02T15:04:05.000Z07:00"`); got != want {
			t.Errorf("%s; want %s", got, want)
		}
	}
}
