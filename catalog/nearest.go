package catalog

// nearest is the known word that was most likely meant, or nothing where none is near enough.
func nearest(word string, known []string) string {
	best, least := "", 0
	for _, candidate := range known {
		// A third of the letters may be wrong; of a short word, one.
		most := max(1, min(len(word), len(candidate))/3)
		if most < max(len(word), len(candidate))-min(len(word), len(candidate)) {
			continue
		}
		if slips := distance(word, candidate); slips <= most && (best == "" || slips < least) {
			best, least = candidate, slips
		}
	}
	return best
}

// distance counts the letters to add, drop, replace or swap with their neighbour to make b out of a.
func distance(a, b string) int {
	before, last := make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := 1; i <= len(a); i++ {
		row := make([]int, len(b)+1)
		row[0] = i
		for j := 1; j <= len(b); j++ {
			replace := last[j-1]
			if a[i-1] != b[j-1] {
				replace++
			}
			row[j] = min(replace, last[j]+1, row[j-1]+1)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
		before, last = last, row
	}
	return last[len(b)]
}
