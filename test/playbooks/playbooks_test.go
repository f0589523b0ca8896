package playbooks

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weir-proxy/weir/limiter"
	"github.com/weir-proxy/weir/test/rounds"
)

// inMemory is a day against one node that counts in memory.
func inMemory(t *testing.T, file string) *Day {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	now := time.Date(2026, 3, 2, 0, 0, 0, 0, time.UTC)
	store := limiter.NewMemory(limiter.MemoryOptions{Clock: func() time.Time { return now }})
	return &Day{Users: 700, Tries: 1200, Send: Start(t, string(text), store).Send, Advance: func(d time.Duration) { now = now.Add(d) }}
}

// cell is a result as the reference says it: codes that were sent, their price, users refused.
func cell(r Result) string {
	return fmt.Sprintf("%s, %s €, %d", thousands(r.Through), thousands(r.Cost/1_000_000), r.Refused)
}

func thousands(n int) string {
	if n < 1000 {
		return fmt.Sprint(n)
	}
	return fmt.Sprintf("%d,%03d", n/1000, n%1000)
}

// The tables of the reference are what a day comes to. At each grant under the limit by country, what
// is open is within the rate and the conversion. A day takes seconds: those of five attacks are run by ./test/proof rounds.
func TestPlaybooks_TheReferenceHasTheirResults(t *testing.T) {
	reference, err := os.ReadFile("../../proxy/docs/fraud.md")
	if err != nil {
		t.Fatal(err)
	}
	names := []string{"all", "pumping"}
	if rounds.Of(1) > 1 {
		names = slices.Sorted(maps.Keys(Attacks()))
	}
	rows := make(map[string]*[2]string)
	var runs sync.WaitGroup
	for _, name := range names {
		row := &[2]string{}
		rows[name] = row
		for i, file := range []string{"before.yaml", name + "/weir.yaml"} {
			d := inMemory(t, file)
			if i == 1 && slices.Contains([]string{"pumping", "counterfeit", "spread", "all"}, name) {
				d.Floor, d.Percent = 40, 35
			}
			runs.Go(func() {
				r := d.Run(1, Attacks()[name])
				row[i] = cell(r)
				if r.Beyond > 0 {
					t.Errorf("%s under %s: %d grants beyond what the limit by country allows", name, file, r.Beyond)
				}
			})
		}
	}
	runs.Wait()
	for _, name := range names {
		want := fmt.Sprintf("| [%s](../../test/playbooks/%[1]s/weir.yaml) | %s | %s |", name, rows[name][0], rows[name][1])
		if !strings.Contains(string(reference), want) {
			t.Errorf("proxy/docs/fraud.md lacks this row:\n%s", want)
		}
	}
}

// Without an attack the limits against all attacks refuse hardly anybody: who comes back and has entered
// no code the day before, and none today.
func TestPlaybooks_OnACalmDay(t *testing.T) {
	if r := inMemory(t, "all/weir.yaml").Run(1, nil); r.Refused > r.Users/200 {
		t.Errorf("%d of %d users were refused", r.Refused, r.Users)
	}
}
