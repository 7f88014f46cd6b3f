"""What a release is made of beside its archives: notes from the changelog, licences, and a trial of the wheel."""
