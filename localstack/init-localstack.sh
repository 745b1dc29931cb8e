#!/bin/sh
# Runs inside the LocalStack container when it is ready: makes the bucket, and for each tenant a role of each kind.
# Safe to repeat.
set -eu
bucket=${SEGLOG_BUCKET:-seglog}
tenants=${SEGLOG_TENANTS:-acme globex}
account=000000000000
trust='{"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Principal": {"AWS": "arn:aws:iam::'$account':root"}, "Action": "sts:AssumeRole"}]}'
expiry='{"Rules": [{"ID": "AbandonedUploads", "Status": "Enabled", "Filter": {"Prefix": ""}, "AbortIncompleteMultipartUpload": {"DaysAfterInitiation": 7}}]}'

awslocal s3api head-bucket --bucket "$bucket" 2>/dev/null || awslocal s3api create-bucket --bucket "$bucket"
awslocal s3api put-bucket-policy --bucket "$bucket" --policy "$(/opt/seglog/policy.sh bucket "$bucket")"
awslocal s3api put-bucket-lifecycle-configuration --bucket "$bucket" --lifecycle-configuration "$expiry"

for tenant in $tenants; do
    for role in reader writer maintainer admin; do
        name=seglog-$tenant-$role
        awslocal iam get-role --role-name "$name" >/dev/null 2>&1 ||
            awslocal iam create-role --role-name "$name" --assume-role-policy-document "$trust" >/dev/null
        awslocal iam put-role-policy --role-name "$name" --policy-name own-prefix \
            --policy-document "$(/opt/seglog/policy.sh "$role" "$tenant" "$bucket")"
        echo "role arn:aws:iam::$account:role/$name: $role of s3://$bucket/$tenant"
    done
done
